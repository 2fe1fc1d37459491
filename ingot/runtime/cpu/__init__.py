"""The CPU device: loader, thread pool, contexts, native fast path. Found through devices.py."""
