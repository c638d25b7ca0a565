"""The words of the screen with what they mean and what to do: for the help and for the page docs/words.md."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from sparktop.model.balance import BalanceWord
from sparktop.model.event import ALERT_KINDS, FindingKind
from sparktop.model.ranks import RanksWord
from sparktop.model.snapshot import BackendState, LimitKind
from sparktop.model.targets import NodeThresholds, StateThresholds

_STATE, _NODE = StateThresholds(), NodeThresholds()
_WITHOUT_BRACES = str.maketrans("", "", "{}")
_WINDOW = f"the last {_STATE.window_s:.0f} s"


class Explained(Struct, frozen=True):
    """A word of the screen."""

    meaning: str
    """When the word is shown, with its limits as they are by default."""
    remedy: str = ""
    """What to do about it; "" where nothing has to be done, or where it depends on the case."""
    remedies: Mapping[str, str] = {}
    """What to do by case; "{PID}" stands for what only the rule knows."""

    @property
    def all_remedies(self) -> tuple[str, ...]:
        """The remedy, or those of all cases, each after its case, or after the cases that share it."""
        cases: dict[str, list[str]] = {}
        for case, remedy in self.remedies.items():
            cases.setdefault(remedy, []).append(case)
        by_case = [f"{', '.join(sharing)}: {remedy}" for remedy, sharing in cases.items()]
        general = [self.remedy] if self.remedy and not by_case else []
        return tuple(remedy.translate(_WITHOUT_BRACES) for remedy in (*by_case, *general))

    @property
    def lines(self) -> str:
        """The meaning, and each remedy behind an arrow in a line of its own."""
        return "\n→ ".join((self.meaning, *self.all_remedies))

    def advice(self, case: str = "", **known: object) -> str:
        """Return what to do, in a case where it depends on that, with what the rule knows filled in."""
        return (self.remedies[case] if case else self.remedy).format_map(known)


STATES: Mapping[BackendState, Explained] = {
    BackendState.UNREACHABLE: Explained(
        "no answer; the lower edge of its panel says why and since when",
        "sparktop doctor TARGET: is the server up, the port right, a firewall between?",
    ),
    BackendState.ENGINE_DEAD: Explained(
        "vLLM's HTTP server answers, its engine process has died",
        "restart it; its event says what was last seen",
    ),
    BackendState.LOADING: Explained(
        "a model is being loaded: its process on a watched node says so, or a 503 (not vLLM's)",
        "wait; if a phase lasts much longer than last time, read the server's log",
    ),
    BackendState.CONNECTING: Explained("it was not asked yet, or has not answered yet"),
    BackendState.ASLEEP: Explained(
        "sleep mode: its weights are offloaded or discarded",
        "vLLM: POST /wake_up; llama.cpp wakes at the next request",
    ),
    BackendState.STUCK: Explained(
        "it holds requests, but has made no progress for 2 minutes while its GPUs are idle (15 minutes where "
        "sparktop does not see the GPUs)",
        "N asks NCCL for the rank that lags (engines over several machines); then restart the engine",
    ),
    BackendState.SUSPECT: Explained(
        "it holds requests, but no progress for 1 minute while its GPUs are idle (5 minutes where sparktop "
        "does not see the GPUs; 15 in a long step); its panel says since when",
        "N asks NCCL which rank lags; watch its machines, so that a long step is no hang",
    ),
    BackendState.STILL: Explained(
        "it holds requests, and nothing has moved for 10 s or twice its usual pause: a fact, no verdict yet",
        "wait",
    ),
    BackendState.PREEMPTING: Explained(
        f"requests were evicted from the KV cache in {_WINDOW}: their tokens are computed again",
        "fewer requests at once, shorter ones, or more memory for the KV cache",
    ),
    BackendState.KV_FULL: Explained(
        f"the KV cache is at least {_STATE.kv_full_percent:.0f} % full",
        "fewer requests at once, or shorter ones",
    ),
    BackendState.QUEUEING: Explained(
        f"requests waited for {100 * _STATE.queueing_share:.0f} % of {_WINDOW} or more",
        "look at what it is limited by; other backends of its router may have free slots",
    ),
    BackendState.STALE: Explained(
        "its newest sample through a Prometheus is older than two and a half scrapes (at least 30 s), or it "
        "limits how often it is asked (429)",
        "its panel says why: does the Prometheus answer, does it still scrape?",
    ),
    BackendState.BUSY: Explained(
        f"at least {100 * _STATE.busy_share:.0f} % of its slots run (of slots not known, "
        f"{_STATE.busy_running:.0f} requests) now or in the mean of {_WINDOW}, requests wait, its GPU is at "
        "work 80 % of the time or more, or it is limited by bandwidth, compute, CPU, power or network; long "
        "step: no progress, but a GPU, link or CPU core of it works: an alert follows after 15 minutes only",
    ),
    BackendState.BORED: Explained(
        f"it has requests, or had some in {_WINDOW}, but fewer than a busy server",
        "more requests at once: a finds how many",
    ),
    BackendState.IDLE: Explained(f"no request ran and no token was computed in {_WINDOW}"),
    BackendState.UNKNOWN: Explained(
        "it answers, but does not report what the rules need; its panel says what it answered",
        "sparktop doctor TARGET; vLLM: start it without --disable-log-stats",
    ),
}
"""The state of a server; the first whose rule is met."""

LIMITS: Mapping[LimitKind, Explained] = {
    LimitKind.KV: Explained(
        "requests wait for room in the KV cache, or are evicted from it: those that run hold too many tokens",
        "fewer requests at once, or shorter ones; --gpu-memory-utilization, an fp8 KV cache, or a second "
        "server",
    ),
    LimitKind.SLOTS: Explained(
        "requests wait because all slots are taken",
        "raise --max-num-seqs, if the KV cache has room: its panel says for how many",
    ),
    LimitKind.BANDWIDTH: Explained(
        "a step takes as long as reading weights and KV cache takes: more requests cost little",
        "more requests at once, smaller weights, speculative decoding",
    ),
    LimitKind.PREFILL: Explained(
        "prompts are computed for half of the time or more",
        "shorter prompts, separate prefill servers, prefix caching where it is off",
    ),
    LimitKind.DECODE: Explained(
        "each further request makes a step longer: the GPU computes, memory is not the limit",
        "more requests bring hardly more tokens per second; a second server does",
    ),
    LimitKind.CPU: Explained(
        "the server's HTTP process, or one core of its machine, is fully used while its GPU is not",
        "fewer requests per process; a faster core",
    ),
    LimitKind.POWER: Explained(
        f"the GPU's clock is held down: power, heat, or below {_NODE.slow_clock_mhz:.0f} MHz under load",
        "power supply and cooling; nvidia-smi -rgc lifts a clock lock",
    ),
    LimitKind.NETWORK: Explained(
        "the links between its ranks carry what they can, or are slow (finding slow-link)",
        "all links up at their full rate; fewer ranks over the network",
    ),
    LimitKind.ROUTER: Explained(
        "by its own counts the requests pass the router, and it splits them unevenly or holds them back",
        "look at the balance: b, then w; a slow router needs a faster core or more processes",
    ),
    LimitKind.CLIENT_OR_ROUTER: Explained(
        "it has no request for part of the time, or few beside free slots: the router in front holds the "
        "others, or does not count them",
        "with LiteLLM, add callbacks: [prometheus] to its configuration: then its requests are counted",
    ),
    LimitKind.CLIENT: Explained(
        "it has no request for part of the time, and none is known to wait for it: clients send no more",
        "nothing to repair; more requests at once bring more tok/s",
    ),
    LimitKind.UNKNOWN: Explained(
        "the figures do not decide it; the reason says what is missing", "supply what the reason names"
    ),
}
"""What a server would need more of to generate more tokens per second."""

BALANCE: Mapping[str, Explained] = {
    BalanceWord.OSCILLATING: Explained(
        "the load swings from one backend to another, more than chance would have it",
        "simple-shuffle or round-robin instead of least-busy, if w says that they would lose less",
    ),
    BalanceWord.STARVED: Explained(
        "one has next to nothing to do while another has more than its share, and throughput is lost",
        "w: is it in cooldown, has it failed, does the router know it?",
    ),
    BalanceWord.UNEVEN: Explained(
        "the same one always has more than its share; without a known router: also loads that take turns",
        "weights and order in the router",
    ),
    BalanceWord.BALANCED: Explained(
        "neither oscillating, starved nor uneven; loads may differ as much as random routing makes them"
    ),
    BalanceWord.IDLE.said: Explained("on average fewer requests than backends, however busy these are"),
    BalanceWord.UNKNOWN: Explained(
        "too few samples or requests yet, sampled too seldom to see a swing, or loads are far apart, but not "
        "steadily: it says which",
        "through Prometheus: enter on the balance polls the servers directly",
    ),
}
"""How evenly the backends of a group are loaded."""

SPEEDS: Mapping[str, Explained] = {
    "normal": Explained("the GPU runs at a clock that its load and power allow"),
    "idle": Explained("the GPU has no load to judge by"),
    "throttled": Explained(
        "the driver reports a reason that lowers the clock: heat or power", "cooler air, power supply"
    ),
    "slow clock": Explained(
        f"a loaded GB10 stays below {_NODE.slow_clock_mhz:.0f} MHz for 10 s; the driver reports no reason",
        "the 240 W adapter that came with it; unplug it from the mains for a minute; nvidia-smi -rgc",
    ),
    "slow steps": Explained(
        f"steps take {_NODE.slow_step_ratio:g} × their earlier time for the same batch, at a healthy clock",
        "other programs on this GPU or its memory? P lists them",
    ),
    "unknown": Explained("the driver reports no clock, or there is no GPU"),
}
"""Whether a machine is as fast as it should be."""

RANKS: Mapping[RanksWord, Explained] = {
    RanksWord.DIVERGED: Explained(
        "ranks have launched different numbers of operations, and none goes on: stuck",
        "look at the machine that is behind",
    ),
    RanksWord.MISSING: Explained("a rank's process is gone or stopped", "look at its machine first"),
    RanksWord.FAILED: Explained(
        "NCCL's port did not answer", "NCCL 2.28.7 or newer with RAS, on a watched machine"
    ),
    RanksWord.MOVING: Explained("counts move: a long step, or slow, but not stuck"),
    RanksWord.NO_VERDICT: Explained("equal counts prove nothing: NCCL counts none inside CUDA graphs"),
    RanksWord.CHANGING: Explained("the job starts or shuts down", "wait"),
    RanksWord.ASKING: Explained("fewer than three answers over 10 s yet", "wait"),
}
"""What NCCL reports about the ranks of an engine."""

_SEND_TWICE = (
    "send one prompt twice: if the second hits, the clients' first tokens change (a date, an id, cache_salt; "
    "Claude Code: CLAUDE_CODE_ATTRIBUTION_HEADER=0); else it is the engine"
)
_IF_REPEATED = "if turns or system prompts repeat"
_LARGE_MTU = "set 9000 on all RDMA ports and the switch"
FINDINGS: Mapping[FindingKind, Explained] = {
    FindingKind.FOR_NOBODY: Explained(
        "the same requests have run for 30 s, none has begun or finished, and nobody is connected to the "
        "server's port but monitors (or all are on the machine of a router that has none in flight): their "
        "clients have hung up. Unknown where the server has accepted requests of the Responses API, which "
        "may run in the background, or (vLLM) does not count them",
        remedies={
            "hung up": "update the server: it does not abort when clients hang up; limit max_tokens",
            "perhaps in the background": "nothing, if their clients sent background: true and ask later",
        },
    ),
    FindingKind.ORPHANED_ENGINE: Explained(
        "a process of an engine has held GPU memory for a minute after the server that started it ended",
        "kill {PID} on {MACHINE}; kill -9 if it stays",
    ),
    FindingKind.YARDSTICKS: Explained(
        "its decode rate in percent of its own best at this batch, of what others published for the model, "
        "engine and machine, and of what the memory bandwidth allows; what is not known is left out"
    ),
    FindingKind.SLOWER_THAN_BEST: Explained(
        "steps take 7 % longer than in its own best run of such a batch, allowing for a larger one; a "
        "warning from 30 % on; its detail lists what has changed since",
        remedies={
            "something has changed": "change it back, one at a time",
            "nothing known has changed": "look for other work on its machines; else restart the server, "
            "then the machine",
        },
    ),
    FindingKind.START_SHORT: Explained(
        "an engine sleeps, loads or has ended, and its machine has less memory than a start or waking "
        "takes, by its last start, by the share that it asks for, or by its weights; or that is not known: "
        "waking and starting have taken whole machines down",
        remedies={
            "too little": "free {SHORT} GiB first, or ask for less",
            "a guard would act": "ask for less, or set its limit lower",
        },
    ),
    FindingKind.START_FITS: Explained(
        "an engine sleeps, loads or has ended, and its machine has the memory that starting or waking takes",
        remedies={
            "with file cache": "if it finds too little free: sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"
        },
    ),
    FindingKind.MEMORY_HELD: Explained(
        "5 GiB or more of a machine's memory beyond the usual 3 (2 GiB of a GPU's own) have been in use for "
        "a minute, and no process that could use them lives",
        "remove the container that ended (docker ps -a); if it stays, restart the machine",
    ),
    FindingKind.DRAFT_LENGTH: Explained(
        "shorter drafts (speculative decoding), or none, would give 10 % more tokens per second, by what "
        "positions add and what steps with shorter drafts took; an alert from 20 % on",
        remedies={
            "shorter is faster": "num_speculative_tokens {K}",
            "none is faster": "start it without drafts",
            "none is accepted": "start it without drafts, or with another draft model",
        },
    ),
    FindingKind.PREFIX_UNUSED: Explained(
        "less than 1 % of 12 prompts or more, of 512 tokens on average, was found in its prefix cache or "
        "LMCache, or that cache is off; where prompts grow turn by turn, less than 10 %: then it is an "
        "alert (of llama.cpp, which does not count prompts, only so); it stays up to 1.5 times these shares",
        remedies={
            "it is off": f"{_IF_REPEATED}: {{OPTION}}",
            "a block exceeds the context": "--max-model-len above {BLOCK}, or smaller blocks ({OPTION})",
            "prompts fill no block": "only {LEAST} tokens or more can be found: smaller blocks ({OPTION})",
            "evicted": "more memory for the KV cache, or fewer conversations at once",
            "turns that find nothing": _SEND_TWICE,
            "the same of llama.cpp": "send one prompt twice: if the second hits, first tokens change, or "
            "conversations share too few slots (-np, --cache-ram); else --no-cache-prompt, cache_prompt in "
            "requests, or sliding windows (--swa-full)",
            "repetition unknown": f"{_IF_REPEATED}, {_SEND_TWICE}",
            "LMCache": "chunk_size below the shared beginning; one PYTHONHASHSEED and model name on all its "
            "servers",
        },
    ),
    FindingKind.MACHINES_DIFFER: Explained(
        "machines of one engine, behind one router or of one product do not have the same kernel, "
        "driver, firmware, BIOS, NCCL or `NCCL_*` variable; those of one engine also not the same MTU, link "
        "rate, ports or subnets, an SM clock 10 % apart at the same load, or clocks 0.5 s apart",
        remedies={
            **dict.fromkeys(("kernel", "NVIDIA driver"), "install the same version on all, and restart them"),
            **dict.fromkeys(("GPU firmware", "BIOS"), "update the firmware of all (fwupdmgr)"),
            "ConnectX firmware": "update the cards' firmware on all",
            "kernel option kho": "give all the same kernel command line",
            "huge pages": "set vm.nr_hugepages alike",
            "power cap": "nvidia-smi -pl sets it; use the same adapters",
            "RDMA ports up": "check cable and interface there",
            "MTU of RDMA ports": _LARGE_MTU,
            "link rate": "check cable and switch port there",
            "NCCL": "run the same container image, or install the same NCCL, on all machines",
            "a variable": "set it alike for all ranks",
            "memory limit": "start the containers with the same --memory",
            "subnets": "give both ends of a cable one subnet",
            "clocks": "start time synchronisation there: timedatectl set-ntp true",
            "SM clock": "check power adapter, cooling and clock limits there",
        },
    ),
    FindingKind.MACHINE_SETUP: Explained(
        "wrong on one machine: memory kept by kexec handover, MTU 1500 of RoCE, missing PCIe lanes, two "
        "RDMA ports in one subnet, memlock below 1 GiB, a device or GID index of NCCL that is not there",
        remedies={
            "KHO": "kho=off on the kernel's command line: RDMA registration can fail with ENOMEM",
            "MTU": _LARGE_MTU,
            "PCIe": "power the machine off and on; look for a BIOS update",
            "subnets": "give each RDMA port a subnet of its own",
            "memlock": "--ulimit memlock=-1 for the container, or LimitMEMLOCK=infinity",
            "NCCL_IB_HCA": "correct the name: /sys/class/infiniband lists them",
            "GID index": "unset NCCL_IB_GID_INDEX (NCCL 2.21 and later find it), or correct it",
        },
    ),
    FindingKind.SLOW_LINK: Explained(
        "for a minute steps take 1.3 times the server's own best at this batch, its GPUs are in use at their "
        "usual clock with 15 % less power (a GB10: below 30 W), RDMA carries below 40 % of the negotiated "
        "rate, and what steps take longer grows with their bytes; unknown while the batch does not vary. "
        "Without a best: a GB10 below 30 W, and steps that take as long as their bytes at all batches",
        remedies={
            "the link": "check the cables, PCIe lanes and error counters of the RDMA ports; look for other "
            "traffic on them",
            "link or GPU": "with other numbers of requests the cause would show",
        },
    ),
    FindingKind.START_STUCK: Explained(
        "a start in which nothing has moved for 5 minutes (critical: 15): memory, disks, links, compilers "
        "and CPU stand still, while its GPU is used at 90 % or more below 30 W, or rests; this phase lasts "
        "longer than last time",
        remedies={
            "several machines": "read each machine's log: a rank that ended leaves the others waiting "
            "(RemoveIPC: enable-linger)",
            "CUDA graphs": "read its log; if it always hangs here, --enforce-eager starts without CUDA "
            "graphs",
            "else": "read its log, then end it",
        },
    ),
}
"""What rules find about a server or a machine apart from its state, by kind; the advice of each `Finding`."""

OTHER_ALERTS: Mapping[str, Explained] = {
    "dead-rank": Explained(
        "a process of its engine ended, and its HTTP server still answers: requests hang or fail",
        "restart the server; the event engine-ended says what was last seen",
    ),
    "blocked": Explained(
        "for 15 s or more requests have waited while none ran, or while it sleeps",
        "its message says what they wait for, if that is known",
    ),
    "absent-model": Explained(
        "a deployment of a router asks a server for a model that the server does not serve",
        "correct the deployment, or start the model",
    ),
    "restarts": Explained("a server restarted twice within 10 minutes (critical: 4 times)", "read its log"),
    "refused": Explained(
        f"it refused {_STATE.refused_warn_per_min:.0f} requests or more in a minute: its queue is full",
        "fewer requests at once, or a second server",
    ),
    "http-errors": Explained(
        f"it answered {_STATE.http_5xx_warn_per_min:.0f} requests or more in a minute with HTTP 5xx",
        "read its log",
    ),
    "aborted": Explained(
        "20 requests or more of a minute, and half of all, ended because their client left",
        "compare its TTFT and E2E with the time limits of clients and router",
    ),
    "lmcache-failures": Explained(
        "LMCache in it counted 3 failures or more in a minute: of allocations, reads, prefetches or timeouts",
        "read its log, and its storage's",
    ),
    "lmcache": Explained("LMCache in it says that it is unhealthy", "read its log, and its storage's"),
    "deployments": Explained(
        "a router reports an outage of a deployment, took it out of service, or got 3 failed answers from it "
        "within a minute (critical: all are out)",
        "read the log of that server, and the router's",
    ),
    "headroom": Explained(
        f"less than {_NODE.headroom_warn_gib:.0f} GiB of unified memory can still be allocated (critical: "
        f"{_NODE.headroom_critical_gib:.0f}); with memory of the GPU's own, less than "
        f"{_NODE.available_warn_percent:.0f} % available ({_NODE.available_critical_percent:.0f})",
        "P: which process grows? Lower --gpu-memory-utilization",
    ),
    "headroom-limit": Explained(
        "as it falls now, the memory left reaches its critical limit within 30 minutes (critical: 5); "
        "with over 25 % free, only a longer fall counts",
        "P: which process grows?",
    ),
    "swap-in": Explained(
        f"{_NODE.swap_in_warn_mib_per_s:g} MiB/s or more come back from swap: everything waits for the disk",
        "P: which process grows? Without swap the kernel ends it instead",
    ),
    "thermal": Explained(
        f"{_NODE.thermal_margin_warn_c:.0f} °C or fewer are left to the GPU's thermal limit (critical: "
        f"{_NODE.thermal_margin_critical_c:.0f})",
        "cooler air",
    ),
    "sensors": Explained(
        "a sensor is at or above the temperature that it calls critical", "cooler air; its event names it"
    ),
    "throttled": Explained(
        f"the GPU was slowed for one reason for {_NODE.throttled_warn_percent:.0f} % of the last minute",
        "see its reason",
    ),
    "power-cap": Explained(
        "its power limit slows the GPU", "raise the limit, if that is allowed: nvidia-smi -pl"
    ),
    "gpu-lost": Explained(
        "a GPU that was there does not answer any more (Xid, fallen off the bus)", "dmesg; reboot"
    ),
    "gpus-gone": Explained("the driver does not answer any more", "nvidia-smi; dmesg; reboot"),
    "not-judged": Explained(
        "a rule of sparktop failed by an error: a verdict on it is missing, all others go on",
        "report the error in the log of sparktop; update sparktop",
    ),
    "rdma-errors": Explained(
        f"{_NODE.rdma_errors_warn_per_s:g} or more errors per second on a RDMA link", "check cable and port"
    ),
}
"""The alerts that are no state of a server, machine or group, and no finding."""

_ALERTS_OF_STATES = {
    "unreachable": STATES[BackendState.UNREACHABLE],
    "engine-dead": STATES[BackendState.ENGINE_DEAD],
    "stuck": STATES[BackendState.STUCK],
    "kv-full": STATES[BackendState.KV_FULL],
    "preempting": STATES[BackendState.PREEMPTING],
    "slow-clock": SPEEDS["slow clock"],
    "slow-steps": SPEEDS["slow steps"],
    "oscillating": BALANCE[BalanceWord.OSCILLATING],
    "starved": BALANCE[BalanceWord.STARVED],
    "uneven": BALANCE[BalanceWord.UNEVEN],
}
_BY_KIND = {
    **_ALERTS_OF_STATES,
    **OTHER_ALERTS,
    **{kind.value: explained for kind, explained in FINDINGS.items()},
}
ALERTS = {kind: _BY_KIND[kind] for kind in ALERT_KINDS}
"""What needs attention now, by its kind; limits by default (see the configuration)."""
