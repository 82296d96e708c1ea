"""Names of parameters, buffers and optimizer state, for error messages. Refuses modules that a budget cannot run."""

import contextlib

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _refusals


class Names:
    """Names the tensors that the first step uses. Later steps use these tensors again."""

    def __init__(self, session):
        self._session = session
        self._seen = set()
        self._names = {}
        self._hooks = [
            register_module_forward_pre_hook(self._see),
            register_optimizer_step_post_hook(self._state),
        ]

    def _see(self, module, _):
        if module in self._seen:
            return
        # The first module that is called contains all other modules of the model.
        for one in module.modules():
            _refusals.check_module(one)
            self._seen.add(one)
        for tensors in module.named_parameters(), module.named_buffers():
            for name, tensor in tensors:
                self._names.setdefault(tensor, name)
                self._session.label(tensor, name)

    def _state(self, optimizer, *_):
        for parameter, state in optimizer.state.items():
            if name := self._names.get(parameter):
                for kind, value in state.items():
                    if isinstance(value, torch.Tensor):
                        self._session.label(value, f"{kind} of {name}")

    def end(self):
        """Ends the naming, so that module calls take no additional time."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._seen, self._names = [], set(), {}


@contextlib.contextmanager
def in_place(session):
    """Names the tensors that are used until `end` is called on the returned value."""
    names = Names(session)
    try:
        yield names
    finally:
        names.end()
