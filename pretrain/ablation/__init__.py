"""Data ablation: does a filter help? The same small model on several builds of a corpus, with equal tokens, over seeds.

| | |
|---|---|
| `command` | the command line, which needs no torch |
| `plan` | arms, seeds, steps, and what is refused |
| `experiment` | trains and measures one run after the other, and goes on after any end |
| `unseen` | held-out documents that no arm was trained on |
| `measuring` | what held-out text and tasks cost the checkpoints of a run |
| `statistics` | means, deviations, intervals of paired differences, verdicts |
| `results` | all of it as one JSON object and as tables for a terminal |
| `page` | the same with error bars and learning curves |
"""
