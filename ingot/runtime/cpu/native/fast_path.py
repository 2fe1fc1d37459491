"""The native fast path, a whole call as LLVM IR: part of the support object (support.py).

`fast_path` has the signature of a CPython builtin function with vectorcall arguments
(METH_FASTCALL). It checks the input arrays, allocates the output arrays, runs the thread pool and
returns a list. Where a call differs from what its record expects (support/abi.py), it returns None
and the Python code handles the call. It holds the GIL except in `pool_run`. It reaches CPython's
functions through addresses in the record, so the object has no undefined symbols.
"""

from __future__ import annotations

from ingot.runtime.cpu.native.thread_pool import field_at as _at
from ingot.support.abi import (
    ARRAY,
    ARRAY_IS_PLAIN,
    FAST_PATH,
    FAST_PATH_PORT,
    FAST_PATH_PORT_BYTES,
    POOL,
    POOL_RUN,
)


def fast_path_text() -> str:
    return "\n".join([_MATCHES, _OUTPUTS, _FAST_PATH])


def _load(name: str, base: str, offset: int, kind: str = "ptr") -> str:
    align = 4 if kind == "i32" else 8
    at = f"{name}_at"
    return f"{_at(at, base, offset)}\n  %{name} = load {kind}, ptr %{at}, align {align}"


# Does the array have the port's element type and sizes? Then its address goes to the port's slot.
_MATCHES = f"""
define internal i1 @matches(ptr %record, ptr %port, ptr %array) nounwind {{
entry:
{_load("type", "array", ARRAY["type"])}
{_load("wanted_type", "record", FAST_PATH["array_type"])}
  %is_array = icmp eq ptr %type, %wanted_type
  br i1 %is_array, label %known, label %no
known:
{_load("dtype", "array", ARRAY["dtype"])}
{_load("flags", "array", ARRAY["flags"], "i32")}
{_load("rank", "array", ARRAY["rank"], "i32")}
{_load("shape", "array", ARRAY["shape"])}
{_load("data", "array", ARRAY["data"])}
{_load("wanted_dtype", "port", FAST_PATH_PORT["what"])}
{_load("wanted_rank", "port", FAST_PATH_PORT["rank"], "i64")}
{_load("wanted_shape", "port", FAST_PATH_PORT["shape"])}
  %plain = and i32 %flags, {ARRAY_IS_PLAIN}
  %is_plain = icmp eq i32 %plain, {ARRAY_IS_PLAIN}
  %is_dtype = icmp eq ptr %dtype, %wanted_dtype
  %rank_long = sext i32 %rank to i64
  %is_rank = icmp eq i64 %rank_long, %wanted_rank
  %good = and i1 %is_plain, %is_dtype
  %better = and i1 %good, %is_rank
  br i1 %better, label %sizes, label %no
sizes:
  %d = phi i64 [0, %known], [%d_next, %size]
  %more = icmp slt i64 %d, %wanted_rank
  br i1 %more, label %size, label %yes
size:
  %n_at = getelementptr i64, ptr %shape, i64 %d
  %n = load i64, ptr %n_at, align 8
  %m_at = getelementptr i64, ptr %wanted_shape, i64 %d
  %m = load i64, ptr %m_at, align 8
  %d_next = add i64 %d, 1
  %same = icmp eq i64 %n, %m
  br i1 %same, label %sizes, label %no
yes:
{_load("slot", "port", FAST_PATH_PORT["place"])}
  store ptr %data, ptr %slot, align 8
  ret i1 true
no:
  ret i1 false
}}"""

# A list of new output arrays, their addresses in their ports' slots; null if Python has raised.
_OUTPUTS = f"""
define internal ptr @make_outputs(ptr %record, ptr %ports, i64 %count) nounwind {{
entry:
{_load("new_list", "record", FAST_PATH["new_list"])}
{_load("set_item", "record", FAST_PATH["set_item"])}
{_load("call", "record", FAST_PATH["call"])}
{_load("make", "record", FAST_PATH["make"])}
  %list = call ptr %new_list(i64 %count)
  %none = icmp eq ptr %list, null
  br i1 %none, label %out, label %each
each:
  %i = phi i64 [0, %entry], [%i_next, %made]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %out
one:
  %offset = mul i64 %i, {FAST_PATH_PORT_BYTES}
  %port = getelementptr i8, ptr %ports, i64 %offset
{_load("arguments", "port", FAST_PATH_PORT["what"])}
  %array = call ptr %call(ptr %make, ptr %arguments, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %release, label %made
made:
{_load("data", "array", ARRAY["data"])}
{_load("slot", "port", FAST_PATH_PORT["place"])}
  store ptr %data, ptr %slot, align 8
  %ignored = call i32 %set_item(ptr %list, i64 %i, ptr %array)
  %i_next = add i64 %i, 1
  br label %each
release:
{_load("decref", "record", FAST_PATH["decref"])}
  call void %decref(ptr %list)
  br label %out
out:
  %result = phi ptr [null, %entry], [%list, %each], [null, %release]
  ret ptr %result
}}"""

_FAST_PATH = f"""
define ptr @fast_path(ptr %self, ptr %arrays, i64 %given) nounwind {{
entry:
{_load("record", "self", ARRAY["data"])}
{_load("forks_at", "record", FAST_PATH["forks"])}
  %forks = load i64, ptr %forks_at, align 8
{_load("born", "record", FAST_PATH["born"], "i64")}
{_load("is_short", "record", FAST_PATH["is_short"], "i64")}
{_load("inputs", "record", FAST_PATH["inputs"], "i64")}
{_at("ports", "record", FAST_PATH["ports"])}
  %is_here = icmp eq i64 %forks, %born
  %is_count = icmp eq i64 %given, %inputs
  %is_enough = icmp eq i64 %is_short, 0
  %good = and i1 %is_here, %is_count
  %better = and i1 %good, %is_enough
  br i1 %better, label %each, label %refuse
each:
  %i = phi i64 [0, %entry], [%i_next, %one]
  %more = icmp slt i64 %i, %inputs
  br i1 %more, label %one, label %checked
one:
  %offset = mul i64 %i, {FAST_PATH_PORT_BYTES}
  %port = getelementptr i8, ptr %ports, i64 %offset
  %array_at = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %array_at, align 8
  %i_next = add i64 %i, 1
  %is_match = call i1 @matches(ptr %record, ptr %port, ptr %array)
  br i1 %is_match, label %each, label %refuse
checked:
{_load("outputs", "record", FAST_PATH["outputs"], "i64")}
  %skip = mul i64 %inputs, {FAST_PATH_PORT_BYTES}
  %out_ports = getelementptr i8, ptr %ports, i64 %skip
  %list = call ptr @make_outputs(ptr %record, ptr %out_ports, i64 %outputs)
  %no_memory = icmp eq ptr %list, null
  br i1 %no_memory, label %fail, label %run
run:
{_load("pool_run", "record", FAST_PATH["pool_run"])}
{_load("save", "record", FAST_PATH["save"])}
{_load("restore", "record", FAST_PATH["restore"])}
  %state = call ptr %save()
  %code = call i32 @pool_run(ptr %pool_run)
  call void %restore(ptr %state)
{_load("wanted", "pool_run", POOL_RUN["wanted"], "i64")}
{_load("threads", "pool_run", POOL_RUN["threads"], "i64")}
{_load("pool", "pool_run", POOL_RUN["pool"])}
{_load("present", "pool", POOL["count"], "i64")}
{_load("limit", "record", FAST_PATH["limit"], "i64")}
  %lacks = icmp sle i64 %threads, %wanted
  %may_grow = icmp slt i64 %present, %limit
  %short = and i1 %lacks, %may_grow
  %short_long = zext i1 %short to i64
  store i64 %short_long, ptr %is_short_at, align 8
  %is_bad = icmp ne i32 %code, 0
  br i1 %is_bad, label %report, label %done
done:
  ret ptr %list
report:
{_load("decref", "record", FAST_PATH["decref"])}
  call void %decref(ptr %list)
{_load("number", "record", FAST_PATH["number"])}
  %code_long = sext i32 %code to i64
  %result = call ptr %number(i64 %code_long)
  ret ptr %result
fail:
  ret ptr null
refuse:
{_load("incref", "record", FAST_PATH["incref"])}
{_load("none", "record", FAST_PATH["none"])}
  call void %incref(ptr %none)
  ret ptr %none
}}"""
