"""No walk depends on Python's recursion limit: recursive functions are segmented, or their depth
has a bound that is listed here with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.layers.recursion import cycles

ROOT = Path(__file__).parents[2] / "ingot"

SUBGRAPHS = (64, "sub-graphs and calls nest at most node_order.MAX_DEPTH deep; a file nests 33 If")
ATTRIBUTES = (8, "tuples in an attribute, or types in a type: the operators define their depth")
MEANINGS = (8, "an instruction's meaning calls other instructions: a library defines their depth")
ALIASES = (64, "a helper function's parameter stands for its argument: the depth of nested helpers")
PATTERN = (8, "a pattern is written by hand")

# module → function of each group of recursive functions → (bound of its depth, reason)
OPTIONALS = (2, "an optional holds a tensor or a sequence")

BOUNDED: dict[str, dict[str, tuple[int, str]]] = {
    "arith/expr.py": {"_substitute": (24, "SHALLOW, then `fold`")},
    "arith/range_analysis.py": {"_Search.low": (8, "SEARCH_DEPTH")},
    "arith/simplify.py": {"simplifier": (2, "limits are simplified without limits")},
    "cli/output.py": {"plain": ATTRIBUTES},
    "codegen/c_values.py": {"ValuePrinter._load": (2, "a masked load is printed without its mask")},
    "codegen/llvm_memory.py": {"LoadPrinter.load": (2, "a guarded load is printed unguarded")},
    "codegen/llvm_program.py": {"_Entry.stmt": SUBGRAPHS},
    "frontends/common/fourier.py": {
        "factored": (24, "each time a factor of the length is taken out"),
        "cost_of_factors": (24, "each time a factor of the length is taken out"),
    },
    "frontends/common/shape_values.py": {"_plain": ATTRIBUTES, "_is_symbolic": ATTRIBUTES},
    "frontends/common/solver.py": {"SizeSolver.resolve_graph": SUBGRAPHS},
    "frontends/onnx/border.py": {
        "_kinds": OPTIONALS,
        "_names": OPTIONALS,
        "operand_type_proto": OPTIONALS,
    },
    "frontends/onnx/einsum.py": {"diagonal": (26, "one repeated label each time")},
    "frontends/onnx/functions.py": {
        "_Survey.node": SUBGRAPHS,
        "standard_body": (8, "bodies in ONNX's own schemas"),
    },
    "frontends/onnx/graph_walk.py": {"Walker._walk_nodes": SUBGRAPHS},
    "frontends/onnx/node_order.py": {"free_names": SUBGRAPHS},
    "frontends/onnx/operands.py": {
        "parts": OPTIONALS,
        "rebuilt": OPTIONALS,
        "part_names": OPTIONALS,
        "kind_of": OPTIONALS,
        "joined": OPTIONALS,
    },
    "graph/interp.py": {"_run": SUBGRAPHS, "resolve": ATTRIBUTES},
    "graph/ir.py": {"_freeze": ATTRIBUTES},
    "graph/parse.py": {"_graph": SUBGRAPHS},
    "graph/substitute.py": {"substitute_graph": SUBGRAPHS, "map_sizes": SUBGRAPHS},
    "graph/text.py": {"_graph": SUBGRAPHS},
    "graph/types.py": {"_show_list": ATTRIBUTES},
    "graph/verify.py": {
        "_verify": SUBGRAPHS,
        "_is_attr": ATTRIBUTES,
        "attr_dims": ATTRIBUTES,
    },
    "inspect/exact.py": {"widened": SUBGRAPHS},
    "inspect/stages.py": {"_with_barriers": SUBGRAPHS},
    "legalize/expand_calls.py": {"_meaning": MEANINGS},
    "legalize/expand_math.py": {"_Expand.cast": (3, "each time a wider type")},
    "legalize/widen.py": {"Widen.scatter": (2, "the mask has a name then")},
    "loops/canonical.py": {"canonical": MEANINGS},
    "loops/interp.py": {"_Program.lockstep": (64, "loops and blocks around a Sync")},
    "loops/rename.py": {"Renamer.annotation": ATTRIBUTES},
    "loops/script_print_values.py": {"_annotation": ATTRIBUTES},
    "loops/script_scope.py": {"look_up": (8, "a dotted name")},
    "loops/script_values.py": {
        "Values.buffer_named": ALIASES,
        "Values.dtype": ALIASES,
        "Values.annotation_value": ATTRIBUTES,
    },
    "loops/verify.py": {"_annotation_vars": ATTRIBUTES, "_is_annotation": ATTRIBUTES},
    "loops/visit.py": {"written": MEANINGS, "read": MEANINGS},
    "ops/concat_pad.py": {"select_operand": (32, "binary search: log2 of the operands")},
    "ops/interleave.py": {"OperandSelect.select": (8, "the axes of a tensor")},
    "ops/reduce.py": {"Reduction.accumulate.element": (1, "a method of the same name")},
    "ops/sources.py": {"choose": (32, "binary search: log2 of the values")},
    "passes/choose_layouts.py": {"choose_layouts": SUBGRAPHS},
    "passes/decompose.py": {"_decompose": SUBGRAPHS},
    "passes/edit.py": {
        "symbol_names": SUBGRAPHS,
        "outer_symbols": SUBGRAPHS,
    },
    "passes/fold_batch_norm.py": {"fold_batch_norm": SUBGRAPHS},
    "passes/fold_constants.py": {"_fold": SUBGRAPHS},
    "passes/fold_output_scales.py": {
        "fold_output_scales": SUBGRAPHS,
        "_chain": (8, "its argument `depth`"),
    },
    "passes/capture_constants.py": {"capture_constants": SUBGRAPHS},
    "passes/fit_dot_operands.py": {"fit_dot_operands": SUBGRAPHS},
    "passes/hoist_invariants.py": {"hoist_invariants": SUBGRAPHS},
    "passes/hoist_quantize.py": {"hoist_quantize": SUBGRAPHS},
    "passes/inline_branches.py": {"_inline": SUBGRAPHS},
    "passes/integer_contractions.py": {"integer_contractions": SUBGRAPHS},
    "passes/move_zero_points.py": {"move_zero_points": SUBGRAPHS},
    "passes/narrow_weights.py": {"_narrowed_graph": SUBGRAPHS},
    "passes/weight_reader.py": {"weight_bytes": SUBGRAPHS},
    "passes/widen_weights.py": {"_widened_graph": SUBGRAPHS},
    "passes/merge_common.py": {"merge_common": SUBGRAPHS, "_exact": ATTRIBUTES},
    "passes/patterns/matcher.py": {"Matcher.factors": (8, "MAX_DEPTH of a pattern")},
    "passes/recognize.py": {"recognize": SUBGRAPHS},
    "passes/remove_dead_code.py": {"remove_dead_code": SUBGRAPHS},
    "passes/byte_windows.py": {"byte_windows": SUBGRAPHS},
    "passes/lookup_tables.py": {"lookup_tables": SUBGRAPHS},
    "passes/scale_weights.py": {"scale_weights": SUBGRAPHS},
    "passes/keep_weights_packed.py": {"keep_weights_packed": SUBGRAPHS},
    "passes/pack_weights.py": {"pack_weights": SUBGRAPHS},
    "passes/separate_pads.py": {"separate_pads": SUBGRAPHS},
    "passes/simplify_algebra.py": {
        "simplify_algebra": SUBGRAPHS,
        "_is_positive": (8, "its argument `depth`"),
    },
    "passes/sink_dequantize.py": {"sink_dequantize": SUBGRAPHS},
    "passes/sink_reshapes.py": {"sink_reshapes": SUBGRAPHS},
    "passes/split_transposed.py": {"split_transposed": SUBGRAPHS},
    "passes/use_winograd.py": {"use_winograd": SUBGRAPHS},
    "pipeline.py": {"constants_of": SUBGRAPHS},
    "plan/barriers.py": {"_Barriers.stmt": SUBGRAPHS},
    "plan/lifetimes.py": {"_Uses.stmt": SUBGRAPHS},
    "plan/memory.py": {"_reserve": SUBGRAPHS},
    "program/interp.py": {"_Machine.stmt": SUBGRAPHS},
    "program/races.py": {"_since_barrier": SUBGRAPHS},
    "program/tables.py": {"map_launches": SUBGRAPHS},
    "program/text.py": {"_show_stmt": SUBGRAPHS, "_Parser.stmt": SUBGRAPHS},
    "program/verify.py": {"_Contents.stmt": SUBGRAPHS},
    "schedule/matching.py": {"_Match.value": (32, "the values of an instruction's meaning")},
    "support/identity.py": {"modules_below": (8, "folders of the package")},
    "support/rewrite.py": {"variables": PATTERN, "_match": PATTERN},
}


def _modules() -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py"))


@pytest.mark.parametrize("module", _modules())
def test_recursive_functions_are_segmented_or_bounded(module):
    known = BOUNDED.get(module, {})
    groups = cycles((ROOT / module).read_text())
    unbounded = [sorted(group) for group in groups if not group & known.keys()]
    assert not unbounded, "mark one with @segmented, use an explicit stack, or list its bound"
    unused = [name for name in known if not any(name in group for group in groups)]
    assert not unused, "these are not recursive, or segmented: remove their bounds"


def test_every_module_with_bounds_exists():
    assert BOUNDED.keys() <= set(_modules())


RECURSIVE = {
    "def f(x): return f(x.a)": {"f"},
    "def f(x): return g(x)\ndef g(x): return [f(y) for y in x]": {"f", "g"},
    "class A:\n    def f(self, x): return rebuild(x, self.f)": {"A.f"},
    "def f(x):\n    def inner(y): return inner(y.a)\n    return inner(x)": {"f.inner"},
}
NOT_RECURSIVE = (
    "@segmented\ndef f(x): return f(x.a)",
    "@segmented\ndef f(x): return g(x)\ndef g(x): return f(x)",
    "def f(x): return g(x)\ndef g(x): return x",
    "def f(f): return f(1)",
    "class A:\n    def f(self, x): return f(x)\ndef f(x): return x",
)


@pytest.mark.parametrize("source", RECURSIVE)
def test_cycles_are_found(source):
    assert cycles(source) == [RECURSIVE[source]]


@pytest.mark.parametrize("source", NOT_RECURSIVE)
def test_other_calls_are_no_cycles(source):
    assert cycles(source) == []
