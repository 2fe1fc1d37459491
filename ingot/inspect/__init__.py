"""Looks into a compilation that went wrong: `ingot verify`.

verify.py is the search from a model to a stage, a node and a reproducer; exact.py evaluates in
float64, difference.py decides what rounding explains, subgraph.py cuts a graph, case.py compiles
and runs a piece, shrink.py makes it smaller, stages.py finds the stage (order.py checks what it
marked), launches.py and kernels.py the kernel; reproducer.py writes and replays what is left.
imported.py compares what import made of each node with what onnx_oracle.py or torch_oracle.py
computes.
"""

INTERPRETER = "interpreter"
READS = {"onnxruntime": "onnx", "torch": "torch"}  # runtime → the importer of what it reads
AGAINST = (INTERPRETER, *READS)  # what compiled code may be compared with
