"""Next logits by keys and values that are kept: each token goes through the model once.

Rows of a batch are aligned at their end, so that one new token of each takes one more place of all. What lies before a
row's first visible token is hidden from it: what pads shorter rows and, under a document mask, what lies before its
document. Where every row hides something the places are not even read. Nothing ties a token's place to its position: a
row whose window begins anew leaves, is read again, and joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pretrain.generation.generate import Text
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.model import GPT
from pretrain.model.attention_mask import Visibility

PADDING = -1  # the document of the places before a row: they see each other, so that no softmax is empty


class LayerKVCache:
    """Keys and values [2, B, G, capacity, K] that one layer has computed, the newest in the last of the places in
    use."""

    def __init__(self) -> None:
        self.width = 0  # how many of the newest places are read; older ones are forgotten when room is made
        self._held: Tensor | None = None
        self._stop = 0  # of the places in use

    def extend(self, k_BGTK: Tensor, v_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values; returns the newest `width`, of which these are the last."""
        num_new = k_BGTK.shape[2]
        if self._held is None or self._stop + num_new > self._held.shape[3]:
            self._make_room(k_BGTK)
        assert self._held is not None
        start, self._stop = self._stop, self._stop + num_new
        k_BGPK, v_BGPK = self._held
        k_BGPK[:, :, start : self._stop] = k_BGTK
        v_BGPK[:, :, start : self._stop] = v_BGTK
        read = slice(self._stop - self.width, self._stop)
        return k_BGPK[:, :, read], v_BGPK[:, :, read]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows, in this order; one may come several times."""
        assert self._held is not None
        self._held = self._held[:, rows]

    def join(self, other: LayerKVCache) -> None:
        """Add the rows of another cache. The narrower of both is padded with zeros."""
        old, new = self.newest(self.width), other.newest(other.width)
        self.width = self._stop = max(self.width, other.width)
        shape = list(old.shape)
        shape[1] += new.shape[1]
        shape[3] = 2 * self.width
        self._held = old.new_zeros(shape)
        self._held[:, : old.shape[1], :, self._stop - old.shape[3] : self._stop] = old
        self._held[:, old.shape[1] :, :, self._stop - new.shape[3] : self._stop] = new

    def _make_room(self, k_BGTK: Tensor) -> None:
        """Twice the places that are read now: a place is copied once on average, a forgotten one not at all."""
        num_samples, num_heads, num_new, head_size = k_BGTK.shape
        num_old = self.width - num_new
        held = k_BGTK.new_empty(2, num_samples, num_heads, 2 * self.width, head_size)
        if num_old:
            held[:, :, :, :num_old] = self.newest(num_old)
        self._held, self._stop = held, num_old

    def newest(self, width: int) -> Tensor:
        """Keys and values [2, B, G, width, K] of the newest places."""
        assert self._held is not None
        return self._held[:, :, :, self._stop - width : self._stop]


@dataclass(frozen=True)
class _Row:
    """A text whose keys and values are kept, as it was when its window was read."""

    text: Text
    first: int  # where the window begins
    sees_from: int  # the first of the text's tokens that a new one sees
    origin: int  # the token at position 0

    @property
    def width(self) -> int:
        """How many tokens the newest one sees, itself included."""
        return len(self.text.tokens) - self.sees_from


class KVCachedModel:
    """Next logits of a whole model's texts, each token computed once."""

    def __init__(self, model: GPT, batcher: EvaluationBatcher, device: torch.device | str = "cpu") -> None:
        self._model = model
        self._batcher = batcher
        self._device = device
        self._rows: list[_Row] = []
        self._layers: dict[int, LayerKVCache] = {}

    @torch.inference_mode()  # nothing of it comes into training, unlike the gathered weights of a mesh
    def __call__(self, texts: Sequence[Text]) -> Tensor:
        """Logits [B, V]."""
        held = {id(row.text): place for place, row in enumerate(self._rows) if row.first == row.text.first}
        self._keep([held[id(text)] for text in texts if id(text) in held])
        logits_BV = self._step() if self._rows else None
        if new := [text for text in texts if id(text) not in held]:
            of_new_BV = self._begin(new)
            logits_BV = of_new_BV if logits_BV is None else torch.cat((logits_BV, of_new_BV))
        assert logits_BV is not None
        place_of = {id(row.text): place for place, row in enumerate(self._rows)}
        order = [place_of[id(text)] for text in texts]
        return logits_BV if order == sorted(order) else logits_BV[order]

    def _keep(self, rows: list[int]) -> None:
        if rows == list(range(len(self._rows))):
            return
        self._rows = [self._rows[row] for row in rows]
        for layer in self._layers.values():
            layer.keep(rows)

    def _step(self) -> Tensor:
        """Logits [B, V] after the newest token of each row, the only one that is not in the cache."""
        widths = [row.width for row in self._rows]
        width = max(widths)
        mask_BTP: Tensor | None = None
        if min(widths) < width:
            hidden_B = width - self._tensor(widths)
            mask_BTP = (torch.arange(width, device=self._device) >= hidden_B[:, None])[:, None]
        tokens_BT = self._tensor([[row.text.tokens[-1]] for row in self._rows])
        positions_BT = self._tensor([[len(row.text.tokens) - 1 - row.origin] for row in self._rows])
        for layer in self._layers.values():
            layer.width = width
        return self._model.extend(tokens_BT, positions_BT, mask_BTP, self._layers)[:, -1]

    def _begin(self, texts: Sequence[Text]) -> Tensor:
        """Logits [B, V] after the windows of texts, which become rows; equal windows are read once."""
        windows: dict[tuple[tuple[int, ...], int], int] = {}
        places = [windows.setdefault((tuple(text.window), text.window_prefix), len(windows)) for text in texts]
        length = max(len(tokens) for tokens, _ in windows)
        layers = {index: LayerKVCache() for index in map(int, self._model.layers)}
        for layer in layers.values():
            layer.width = length
        logits_BV = self._model.extend(*self._padded(list(windows), length), layers)[:, -1]

        rows = [self._row(text) for text in texts]
        width = max(row.width for row in rows)
        for index, layer in layers.items():
            layer.width = width
            layer.keep(places)
            if self._rows:
                self._layers[index].join(layer)
            else:
                self._layers[index] = layer
        self._rows += rows
        return logits_BV[places]

    def _padded(self, windows: Sequence[tuple[tuple[int, ...], int]], length: int) -> tuple[Tensor, Tensor, Visibility]:
        """Tokens and positions [B, T] of windows that are padded on the left, and who sees whom in them, each as
        `EvaluationBatcher` reads it."""
        tokens, positions, documents, ends = [], [], [], []
        for window, prefix in windows:
            array = np.array([window])
            batch = self._batcher.micro_batch(array, array, self._device, np.array([prefix]))
            missing = length - len(window)
            plain = torch.arange(len(window), device=self._device)[None]
            tokens.append(F.pad(batch.tokens, (missing, 0)))
            positions.append(F.pad(plain if batch.positions is None else batch.positions, (missing, 0)))
            ids = torch.zeros(array.shape, dtype=torch.int32) if batch.document_ids is None else batch.document_ids
            documents.append(F.pad(ids, (missing, 0), value=PADDING))
            if batch.prefix_ends is not None:
                ends.append(F.pad(batch.prefix_ends + missing, (missing, 0)))
        is_padded = any(len(window) < length for window, _ in windows)
        visibility = Visibility(
            torch.cat(documents) if is_padded or self._batcher.document_mask else None,
            torch.cat(ends) if ends else None,
        )
        return torch.cat(tokens), torch.cat(positions), visibility

    def _row(self, text: Text) -> _Row:
        """What the tokens to come see, and where their positions begin: at the text's last document, or at its
        window."""
        document = text.first
        if self._batcher.eod in text.window:
            document = len(text.tokens) - text.tokens[::-1].index(self._batcher.eod)
        return _Row(
            text,
            text.first,
            document if self._batcher.document_mask else text.first,
            document if self._batcher.reset_positions else text.first,
        )

    def _tensor(self, values: object) -> Tensor:
        return torch.tensor(values, device=self._device)
