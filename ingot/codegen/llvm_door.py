"""A whole call as LLVM IR: part of the support object (llvm_support.py).

`door` has the signature of a builtin function of Python's that takes its arguments as a vector. It
checks the arrays given, makes those of the outputs, runs the gang and returns a list; whatever is
not as its record says (support/abi.py) it refuses by returning None, and Python looks closer. It
runs under the interpreter's lock but for the gang. Everything of Python's is reached through
addresses in the record, so the object stays closed.
"""

from __future__ import annotations

from ingot.codegen.llvm_gang import field_at as _at
from ingot.support.abi import ARRAY, ARRAY_IS_PLAIN, DOOR, DOOR_PORT, DOOR_PORT_BYTES, GANG, POOL


def door_text() -> str:
    return "\n".join([_FITS, _RESULTS, _DOOR])


def _load(name: str, base: str, offset: int, kind: str = "ptr") -> str:
    align = 4 if kind == "i32" else 8
    at = f"{name}_at"
    return f"{_at(at, base, offset)}\n  %{name} = load {kind}, ptr %{at}, align {align}"


# is the array as the port says? its address goes to the port's place then
_FITS = f"""
define internal i1 @fits(ptr %door, ptr %port, ptr %array) nounwind {{
entry:
{_load("type", "array", ARRAY["type"])}
{_load("wanted_type", "door", DOOR["array_type"])}
  %is_array = icmp eq ptr %type, %wanted_type
  br i1 %is_array, label %known, label %no
known:
{_load("dtype", "array", ARRAY["dtype"])}
{_load("flags", "array", ARRAY["flags"], "i32")}
{_load("rank", "array", ARRAY["rank"], "i32")}
{_load("shape", "array", ARRAY["shape"])}
{_load("data", "array", ARRAY["data"])}
{_load("wanted_dtype", "port", DOOR_PORT["what"])}
{_load("wanted_rank", "port", DOOR_PORT["rank"], "i64")}
{_load("wanted_shape", "port", DOOR_PORT["shape"])}
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
{_load("place", "port", DOOR_PORT["place"])}
  store ptr %data, ptr %place, align 8
  ret i1 true
no:
  ret i1 false
}}"""

# a list of new arrays, their addresses at their ports' places; null with an exception set
_RESULTS = f"""
define internal ptr @results(ptr %door, ptr %ports, i64 %count) nounwind {{
entry:
{_load("new_list", "door", DOOR["new_list"])}
{_load("set_item", "door", DOOR["set_item"])}
{_load("call", "door", DOOR["call"])}
{_load("make", "door", DOOR["make"])}
  %list = call ptr %new_list(i64 %count)
  %none = icmp eq ptr %list, null
  br i1 %none, label %out, label %each
each:
  %i = phi i64 [0, %entry], [%i_next, %made]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %out
one:
  %offset = mul i64 %i, {DOOR_PORT_BYTES}
  %port = getelementptr i8, ptr %ports, i64 %offset
{_load("arguments", "port", DOOR_PORT["what"])}
  %array = call ptr %call(ptr %make, ptr %arguments, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %give_up, label %made
made:
{_load("data", "array", ARRAY["data"])}
{_load("place", "port", DOOR_PORT["place"])}
  store ptr %data, ptr %place, align 8
  %ignored = call i32 %set_item(ptr %list, i64 %i, ptr %array)
  %i_next = add i64 %i, 1
  br label %each
give_up:
{_load("decref", "door", DOOR["decref"])}
  call void %decref(ptr %list)
  br label %out
out:
  %result = phi ptr [null, %entry], [%list, %each], [null, %give_up]
  ret ptr %result
}}"""

_DOOR = f"""
define ptr @door(ptr %self, ptr %arrays, i64 %given) nounwind {{
entry:
{_load("door", "self", ARRAY["data"])}
{_load("forks_at", "door", DOOR["forks"])}
  %forks = load i64, ptr %forks_at, align 8
{_load("born", "door", DOOR["born"], "i64")}
{_load("is_short", "door", DOOR["is_short"], "i64")}
{_load("inputs", "door", DOOR["inputs"], "i64")}
{_at("ports", "door", DOOR["ports"])}
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
  %offset = mul i64 %i, {DOOR_PORT_BYTES}
  %port = getelementptr i8, ptr %ports, i64 %offset
  %array_at = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %array_at, align 8
  %i_next = add i64 %i, 1
  %does_fit = call i1 @fits(ptr %door, ptr %port, ptr %array)
  br i1 %does_fit, label %each, label %refuse
checked:
{_load("outputs", "door", DOOR["outputs"], "i64")}
  %skip = mul i64 %inputs, {DOOR_PORT_BYTES}
  %out_ports = getelementptr i8, ptr %ports, i64 %skip
  %list = call ptr @results(ptr %door, ptr %out_ports, i64 %outputs)
  %no_memory = icmp eq ptr %list, null
  br i1 %no_memory, label %fail, label %run
run:
{_load("gang", "door", DOOR["gang"])}
{_load("save", "door", DOOR["save"])}
{_load("restore", "door", DOOR["restore"])}
  %state = call ptr %save()
  %code = call i32 @gang_run(ptr %gang)
  call void %restore(ptr %state)
{_load("wanted", "gang", GANG["wanted"], "i64")}
{_load("team", "gang", GANG["team"], "i64")}
{_load("pool", "gang", GANG["pool"])}
{_load("present", "pool", POOL["count"], "i64")}
{_load("limit", "door", DOOR["limit"], "i64")}
  %lacks = icmp sle i64 %team, %wanted
  %may_grow = icmp slt i64 %present, %limit
  %short = and i1 %lacks, %may_grow
  %short_long = zext i1 %short to i64
  store i64 %short_long, ptr %is_short_at, align 8
  %is_bad = icmp ne i32 %code, 0
  br i1 %is_bad, label %report, label %done
done:
  ret ptr %list
report:
{_load("decref", "door", DOOR["decref"])}
  call void %decref(ptr %list)
{_load("number", "door", DOOR["number"])}
  %code_long = sext i32 %code to i64
  %told = call ptr %number(i64 %code_long)
  ret ptr %told
fail:
  ret ptr null
refuse:
{_load("incref", "door", DOOR["incref"])}
{_load("none", "door", DOOR["none"])}
  call void %incref(ptr %none)
  ret ptr %none
}}"""
