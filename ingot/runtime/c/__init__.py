"""The device that runs C text: the system's C compiler makes a shared object, ctypes calls it."""
