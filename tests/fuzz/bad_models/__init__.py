"""Mutated model files: whatever a file holds, the answer is an executable or an IngotError.

corpus.py   small valid models, many operators; suite_seeds.py and domain_seeds.py add to it
attacks.py, operator_attacks.py   what no accident does to a model
mutate.py   a seed and the corpus → a broken model
child.py    one process per mutant, limited in time and memory
test_bad_models.py   the suite
"""
