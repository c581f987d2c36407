"""Starting processes: devices, precision, and restarts by torchrun."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from torchlht.answer.asking import find_device
from torchlht.errors import ConfigError
from torchlht.learn.alone import Alone, Machine

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def find_machine(accelerator: str = "auto", devices: int = 1, precision: str = "32-true") -> Machine:
    """What to compute on: this process alone if that is enough, else a Fabric.

    Raises:
        ConfigError: if there is no such device, or there are too few.
    """
    launched = any(name in os.environ for name in ("LT_CLI_USED", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    plain = accelerator == "cpu" or (accelerator == "auto" and find_device("auto").type == "cpu")
    if plain and devices == 1 and precision in ("32-true", "bf16-mixed") and not launched:
        return Alone(mixed=precision == "bf16-mixed")
    return make_fabric(accelerator, devices, precision)


def make_fabric(accelerator: str, devices: int, precision: Any) -> Fabric:
    """A Fabric with these devices and this precision, or with those that torchrun or `fabric run` set for this process."""
    from lightning_fabric import Fabric  # slow to import

    if os.environ.get("LT_CLI_USED"):
        return Fabric()  # `fabric run` has launched the processes and passes the rest through the environment
    local = int(os.environ.get("LOCAL_WORLD_SIZE", devices))
    nodes = max(int(os.environ.get("WORLD_SIZE", local)) // local, 1)
    most = max(os.cpu_count() or 1, torch.cuda.device_count(), 8)
    if local > most:
        raise ConfigError(f"`devices` is {local}, but this machine can use at most {most}")
    strategy = "ddp" if local * nodes > 1 else "auto"
    try:
        fabric = Fabric(accelerator=accelerator, devices=local, num_nodes=nodes, precision=precision, strategy=strategy)
    except (ValueError, RuntimeError, ImportError) as error:
        reason = str(error).partition("\n")[0].replace("`", "")  # backquotes would become flags
        raise ConfigError(f"`accelerator={accelerator}` cannot be used here: {reason}") from error
    meet_again(fabric)
    fabric.launch()
    return fabric


def meet_again(fabric: Fabric) -> None:
    """Let processes that torchrun has restarted on one machine meet under a new name.

    Without --standalone or a --rdzv-backend, torchrun keeps one store for all attempts, with addresses of dead processes.
    """
    attempt, world = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), int(os.environ.get("WORLD_SIZE", "1"))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # on several machines, each counts attempts by itself
    if attempt == "0" or world == 1 or here < world or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    dist.init_process_group(
        "nccl" if fabric.device.type == "cuda" else "gloo",
        store=PrefixStore(f"attempt {attempt}", store),
        rank=int(os.environ["RANK"]),
        world_size=world,
    )


def check_compiler(device: torch.device) -> None:
    """Try to compile something small, silently.

    Raises:
        ConfigError: when compiling does not work here, for example without a C++ compiler.
    """
    from torch._dynamo.exc import TorchDynamoException  # takes seconds to import
    from torch._logging._internal import set_logs

    set_logs(all=logging.ERROR)  # no warnings about parts that are not compiled
    try:
        torch.compile(torch.nn.functional.softplus)(torch.ones(2, 3, device=device))
    except TorchDynamoException as error:
        reason = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigError(f"`compile`: torch.compile does not work here ({reason}); train without it") from error


def keep_memory() -> None:
    """Let freed memory stay with this process, where the C library is glibc.

    The maps of a network are large, and glibc would return each to the system and ask for it again: a third of the time.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if adjust is not None:
        never_mapped, never_returned = (-4, 0), (-1, -1)  # M_MMAP_MAX, M_TRIM_THRESHOLD
        adjust(*never_mapped)
        adjust(*never_returned)


def launch_id(machine: Machine) -> str | None:
    """An id that is the same after torchrun restarts its processes and different for any other launch; None without torchrun.

    It is the --rdzv-id; if none was given, the process id of torchrun.
    """
    given = os.environ.get("TORCHELASTIC_RUN_ID")
    if given is None:
        return None
    parts = [socket.gethostname(), str(os.getppid())] if given == "none" else [given]
    found: str = machine.broadcast(hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16])
    return found
