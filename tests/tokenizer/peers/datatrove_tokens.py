"""Token files by datatrove's own code, in its own environment.

tokenize TOKENIZER.json TEXTS.jsonl FOLDER          `DocumentTokenizer` and `MegatronDocumentTokenizer`, in file order
write DOCUMENTS.json FOLDER NAME BYTES              lists of ids by `TokenizedFile`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.tokens.megatron_tokenizer import MegatronDocumentTokenizer
from datatrove.pipeline.tokens.tokenizer import DocumentTokenizer, TokenizedFile
from tokenizers import Tokenizer

EOD_PIECE = "<|endoftext|>"


def tokenize(tokenizer: str, path: str, folder: str) -> dict[str, Any]:
    """Write `FOLDER/ds` and `FOLDER/megatron`; returns the ids that the library gives, without the last one."""
    texts = [json.loads(line)["text"] for line in Path(path).read_text().splitlines()]
    documents = [Document(text=text, id=str(number)) for number, text in enumerate(texts)]
    settings: dict[str, Any] = {"tokenizer_name_or_path": tokenizer, "eos_token": EOD_PIECE}
    DocumentTokenizer(f"{folder}/ds", shuffle_documents=False, **settings).run(iter(documents))
    MegatronDocumentTokenizer(f"{folder}/megatron", **settings).run(iter(documents))
    library = Tokenizer.from_file(tokenizer)
    return {"ids": [library.encode(text, add_special_tokens=False).ids for text in texts]}


def write(path: str, folder: str, name: str, num_bytes: str) -> dict[str, Any]:
    """Write documents as they are."""
    file = TokenizedFile(folder, name, token_size=int(num_bytes), save_final_metadata=True)
    documents = json.loads(Path(path).read_text())
    for ids in documents:
        file.write(ids, None)
    file.close()
    return {"documents": len(documents), "tokens": len(file)}


COMMANDS: dict[str, Callable[..., Any]] = {"tokenize": tokenize, "write": write}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
