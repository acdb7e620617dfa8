"""Checkpoints: complete or absent, checked before use, readable by any number of ranks, and free of pickle.

    OUT/checkpoints/step-00000100/                      or the same folder below a URL of object storage
        shard-00001-model-00001-of-00001.safetensors    what rank 0 holds of weights and optimizer state
        config.json                                     the run's configuration and what it read
        tokenizer.model                                 what turns its tokens into text
        state.json                                      the counters
        COMMIT.json                                     written last: every file's size and sha256, every tensor's shape

The commit file is the existence: a folder without one is a save that died, which is ignored and swept. A
committed folder is never written into again. Tensors are cut as torch's own distributed checkpoint cuts them and read
back by it, by logical name and slice, so they load bit for bit on any mesh. Before loading,
sizes, hashes and the exact cover of every tensor are checked: torch's reader alone can succeed with a shard
file missing and leave rows uninitialised. There is no state of a random number generator: nothing in training
draws from one (see `model`, `params`, `data`).

What several ranks hold the same is written by one of them, the one that has the least to write; so the files are as
large together as the model, on any mesh. The second storage of a tied weight, on the last stage of a pipeline, is not
written: it is filled with what its original is filled with.

| | |
|---|---|
| `shards` | which slices a rank writes, their copy in host memory, and the file they become |
| `places` | where checkpoints lie: a folder that all ranks see, or a URL |
| `saving` | the order of a save, and its failure |
| `saver` | saves while training goes on |
| `loading` | the checks, and the way back |
| `records` | the JSON files |

Memory: a save that training waits for writes from the tensors themselves, and holds one tensor more on a GPU, none on
the CPU. One in the background holds a copy of what its rank writes, from the first save to the end of the run.
"""

from pretrain.checkpoint.loading import load, load_model, load_weights
from pretrain.checkpoint.places import local_folder, newest_at, place_of
from pretrain.checkpoint.records import TOKENIZER, Commit, Identity, read_commit, read_saved, read_state
from pretrain.checkpoint.saver import Saver
from pretrain.checkpoint.saving import save
from pretrain.run_folder import COMMIT, committed_checkpoints, newest, step_folder

__all__ = [
    "COMMIT",
    "TOKENIZER",
    "Commit",
    "Identity",
    "Saver",
    "committed_checkpoints",
    "load",
    "load_model",
    "load_weights",
    "local_folder",
    "newest",
    "newest_at",
    "place_of",
    "read_commit",
    "read_saved",
    "read_state",
    "save",
    "step_folder",
]
