"""What each class of failure sounds like: word families, as data.

Order matters inside one line: the first rule that matches speaks for it. Between
lines the higher rank wins, then the earlier line: causes come before cascades.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Rank(IntEnum):
    """How much a line of a kind explains."""

    REQUEST = 1
    SYMPTOM = 2
    GENERIC = 3
    LIKELY = 4
    CAUSE = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """A word family.

    Attributes:
        name: The class, or ``oom_device``, which the phase turns into a class.
        rank: How much it explains.
        pattern: Found in one line, or across a hard wrap of two.
        even_quiet: Counts in INFO and WARNING records too.
    """

    name: str
    rank: Rank
    pattern: re.Pattern[str]
    even_quiet: bool = False


def _any(*alternatives: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{a})" for a in alternatives), flags)


# Names of settings, as options, fields or in words.
SETTING: Final = (
    r"(?:--[a-z][a-z0-9]+(?:-[a-z0-9]+)*|\b(?:max|min|num|enable|disable|kv|gpu|cpu"
    r"|block|tensor|pipeline|data|expert|world|quantization|attention|speculative"
    r"|chunked|prefix|dtype|load|swap|tokenizer|guided|structured|async|cudagraph"
    r"|compilation|long|stream|hf|lora|mamba|distributed|decode|context)"
    r"(?:_[a-z0-9]+)+|\b(?:tensor|pipeline|data|expert|context)[- ]parallel(?:ism)?"
    r"(?:[ _-]size)?\b|\bmax[- ](?:model[- ]len|num[- ]\w+)|\bblock[ -]size\b"
    r"|\bkv[- ]cache[- ]dtype\b|\bchunked[- ]prefill\b|\bprefix[- ]caching\b"
    r"|\bquantization\b|\battention heads?\b|\bhead[ _]size\b|\bhidden[ _]size\b"
    r"|\bspeculative\b|\bdtype\b|\bLoRA\b|\bcudagraph_mode\b|\beagle\b|\bdraft model\b"
    r"|\brope[_ ]\w+|\bexpert_parallel\b|\bmodel dtype\b|\bload_format\b)"
)
# What is said of a setting that cannot be.
REFUSED: Final = (
    r"(?:must (?:be|not|have|equal|divide|match)|should (?:be|not)|has to be"
    r"|cannot be|can't be|can ?not (?:use|set|enable|exceed)|need(?:s)? to be"
    r"|not (?:\w+ )?(?:supported|valid|allowed|divisible|compatible|aligned"
    r"|implemented|recogni[sz]ed|available|a multiple|equal)"
    r"|(?:isn't|doesn't|does not|do not|don't) (?:currently )?(?:support|allow|match)"
    r"|only support|is required|requires?\b|(?:is|are) (?:only )?(?:larger|smaller"
    r"|greater|less|bigger|higher|lower|too \w+)|(?:larger|smaller|greater|less) than"
    r"|too (?:large|small|big|high|low|many|few)|exceeds?\b|unknown|invalid"
    r"|unsupported|unrecogni[sz]ed|incompatible|mutually exclusive|conflict"
    r"|divisible|unexpected (?:keyword|argument|value|key|type)|out of range"
    r"|crash(?:es|ed)?|fails?\b|illegal)"
)
_REFUSING: Final = (
    r"^(?:raise )?(?:[\w.]+\.)?(?:ValueError|NotImplementedError|AssertionError"
    r"|VLLMValidationError|ArgumentError|ArgumentTypeError)\W"
)
_WEIGHT_FILE: Final = (
    r"(?:config\.json|params\.json|\.safetensors|\.bin\b|\.gguf|\.pt\b|\.pth\b"
    r"|consolidated|index\.json|/models?/|/hub/|snapshots|blobs)"
)
_COMPILER: Final = (
    r"\b(?:nvcc|ptxas|gcc|g\+\+|clang\+*|c\+\+|cc1\w*|ninja|hipcc|ld|lld|collect2|cl"
    r"|cicc|cmake|icpx)\b"
)
_HUB: Final = r"(?:hugging\s?face(?:\.co)?|\bhf\b|hf\.co|<hub>|modelscope|\bhub\b)"
_BUILD_PART: Final = r"(?:Python\.h|std\w+\.h|\w+\.(?:h|hpp|cuh)\b|-lcuda\w*|-l\w+\b)"

RULES: Final[tuple[Rule, ...]] = (
    # -- a backend refused: the reasons tell whether the device or a setting did ---
    Rule(
        "invalid_config",
        Rank.CAUSE,
        _any(
            r"no valid .{0,40}backend|(?:backend|kernel)\S* .{0,60}not valid"
            r"|[`'\"\[][\w ]{1,40}(?:dtype|size|mode|type|len|mla|sinks?|sparse)"
            r" not supported|selected backend",
        ),
    ),
    # -- port -------------------------------------------------------------------
    Rule(
        "port_in_use",
        Rank.CAUSE,
        _any(
            r"address (?:is )?already (?:in use|being used)",
            r"\bEADDRINUSE\b",
            r"errno (?:98|48|10048)\b",
            r"port \S{1,40} (?:is|was) (?:already |not available|in use|occupied"
            r"|taken)",
            r"port \S{0,12}\s?(?:already|is) (?:in use|allocated|taken|occupied)",
            r"(?:cannot|could not|can't|failed to|unable to) (?:bind|listen)\b"
            r".{0,60}\b(?:port|address|socket)",
            r"no (?:free|available) ports?\b",
        ),
    ),
    # -- host memory ------------------------------------------------------------
    Rule(
        "oom_host",
        Rank.CAUSE,
        _any(
            r"DefaultCPUAllocator|alloc_cpu\.cpp",
            r"can(?:'t|not| not) allocate memory",
            r"std::bad_alloc|\bENOMEM\b",
            r"\bMemoryError\b",
            r"unable to allocate [\d.]+ [KMGT]i?B for an array",
            r"cuda(?:HostAlloc|MallocHost)|hipHostMalloc|cuMemHostAlloc",
            r"(?:pin(?:ned|ning)?|page.?locked)[ _]\w{0,12} ?memory.{0,60}"
            r"(?:fail|error|allocat|out of)",
            r"(?:fail|error|out of).{0,60}(?:pin(?:ned)?|page.?locked)[ _]memory",
            r"oom[-_ ]?kill(?:er|ed)?",
            r"\bOOMKilled\b",
            r"out of memory: kill",
            r"killed process \d+",
            r"memory cgroup out of memory",
            r"killed due to (?:memory pressure|the node running low)",
            r"node running low on memory",
            r"not enough (?:host|cpu|system|shared) memory",
            r"(?:host|cpu|system|main) (?:memory|ram)\b.{0,50}"
            r"(?:exhaust|insufficient|not enough|out of|exceed)",
            r"(?:out of|insufficient|not enough) (?:host|cpu|system) (?:memory|ram)",
            r"too large swap space|insufficient shared memory",
            r"bus error|\bSIGBUS\b",
            r"no space left on device.{0,40}(?:/dev/shm|shm|psm_)",
            r"(?:/dev/shm|shared memory|psm_\w+).{0,80}no space left",
            r"not enough memory.{0,60}(?:cpu|host|node)",
        ),
    ),
    Rule(
        "oom_host",
        Rank.CAUSE,
        _any(
            r"^(?:\S+: line \d+:\s+\d+ )?Killed\b(?: |$)(?!.{0,40}worker)",
            r"^\[\d+\]\+?\s+\d* *Killed\b",
            r"(?:died|exit(?:ed)?|killed|terminated|status|returncode|code)\b.{0,40}"
            r"(?:\(?-9\)?(?![\d.])|\b137\b)",
            r"(?:SIGKILL|signal 9\b|signal: 9\b)",
        ),
    ),
    # -- memory held by somebody else -------------------------------------------
    Rule(
        "memory_not_free",
        Rank.CAUSE,
        _any(
            r"(?:free|available) memory on (?:device|node).{0,80}(?:startup|desired)",
            r"error in memory profiling",
            r"(?:current|initial) free memory .{0,80}(?:initial|current) free memory",
            r"other processes? .{0,60}(?:releas|us|hold|occup)\w* (?:\w+ )?"
            r"(?:gpu|device|vram)? ?memory",
            r"memory .{0,30}(?:held|still (?:in use|occupied|allocated)) by",
        ),
    ),
    # -- KV cache ---------------------------------------------------------------
    Rule(
        "oom_kv_cache",
        Rank.CAUSE,
        _any(
            r"no available memory for the (?:kv )?cache",
            r"less than (?:the )?(?:requested|required|needed) .{0,40}\bkv\b",
            r"available (?:kv )?cache (?:memory|space)\b.{0,40}\(?-?[\d.]+",
            r"kv[ _-]?cache is needed",
            r"(?:larger|more|greater|longer) than .{0,80}(?:kv[ _-]?cache\b"
            r"|cache blocks)",
            r"(?:stored|fit|hold|held) in (?:the )?(?:\w+ )?kv[ _-]?cache",
            r"(?:exceed\w*|not enough|insufficient|too (?:small|few|little)"
            r"|no (?:free|room|space|more|memory)|out of|run out of|unable to allocate"
            r"|cannot allocate"
            r"|fail\w* to allocate).{0,50}"
            r"(?:kv[ _-]?cache\b|cache blocks|(?:gpu|cpu) blocks"
            r"|mamba (?:cache )?blocks)",
            r"kv[ _-]?cache\b.{0,50}(?:not (?:enough|sufficient|fit|large)|too small"
            r"|insufficient|exceed|check\b|out of (?:space|memory|blocks))",
            r"(?:cache blocks|(?:gpu|cpu) blocks)\b.{0,30}(?:not enough|too (?:small"
            r"|few)"
            r"|insufficient|exceed|must be (?:positive|greater|at least))",
            r"(?:negative|zero|0) (?:kv )?cache (?:blocks|memory|size)",
            r"cache_space is too|kvcache_space.{0,60}(?:too|not enough|insufficient"
            r"|larger|exceed|increase)",
            r"cache.{0,40}to serve at least one (?:request|sequence)"
            r"|to serve at least one (?:request|sequence).{0,200}cache",
        ),
    ),
    # -- device memory: the phase says which class ------------------------------
    Rule(
        "oom_device",
        Rank.CAUSE,
        _any(
            r"(?:cuda|hip|xpu|npu|mps|musa|gpu|tpu|device|hbm|vram|rocm)\W{0,3}"
            r"(?:error)?\W{0,3}\w{0,12} ?out of memory",
            r"\b(?:torch\.|cuda\.)*OutOfMemoryError\b",
            r"out of (?:gpu |device |video |cuda |hbm )?memory",
            r"cuda(?:Error)?MemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY",
            r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|hipErrorOutOfMemory",
            r"RESOURCE_EXHAUSTED|OUT_OF_DEVICE_MEMORY|ERROR_OUT_OF_RESOURCES",
            r"tried to allocate [\d.]+ ?[KMGT]i?B",
            r"(?:not enough|insufficient) (?:gpu|device|video|vram|hbm|cuda) ?memory",
            r"(?:gpu|device|vram) memory (?:is )?(?:exhausted|insufficient|full)",
        ),
    ),
    Rule(
        "oom_device",
        Rank.CAUSE,
        re.compile(r"\bOOM(?:s|ed|ing)?\b|\b(?:[Cc]uda|CUDA|[Gg]pu|GPU|hip) oom\b"),
    ),
    # -- remote code ------------------------------------------------------------
    Rule(
        "remote_code",
        Rank.CAUSE,
        _any(
            r"(?:set|pass|add|argument|option|enable|use|with|using|requires?|need\w*"
            r"|without|flag|specify)\b.{0,40}trust[_-]remote[_-]code",
            r"trust[_-]remote[_-]code\W{0,3}(?:=|is|to|must|needs?|required).{0,60}"
            r"(?:allow|requir|remove|error|code|load|not supported)",
            r"(?:contains?|has|have|execute|run) custom code",
            r"(?:execute|run|read) the (?:configuration|modeling|\w+) (?:file|code)"
            r" (?:in that repo|there)",
            r"custom code (?:to be run|which must|must be)",
            r"this modeling file requires the following packages",
            r"No module named ['\"]transformers_modules",
            r"transformers_modules[./\\].{0,200}"
            r"(?:Error|cannot|not found|no attribute)",
            r"auto_map.{0,80}(?:remote|missing|not found|must)",
        ),
    ),
    # -- compilers --------------------------------------------------------------
    Rule(
        "compile_error",
        Rank.CAUSE,
        _any(
            r"(?:not found|no such file|cannot find|could not find|couldn't find"
            r"|unable to find|failed to find|no working|missing|can't find)"
            r".{0,60}(?:" + _COMPILER + r"|c(?:\+\+)? compiler|" + _BUILD_PART + ")",
            r"(?:" + _COMPILER + r"|c(?:\+\+)? compiler)['\"]?(?:: |\b.{0,40})"
            r"(?:not found|no such file|cannot find|cannot execute|failed"
            r"|returned non-zero|exited|fatal)",
            r"^/?\S*bin/(?:nvcc|g?cc|g\+\+|ld|clang\+*|ninja)\b",
            r":?/\S+/nvcc -{1,2}\w",
            r"fatal error: \S+: no such file",
            r"cannot find -l\w+",
            r"Inductor(?:Error)?\b.{0,40}(?:error|exception|fail|:)",
            r"torch\._inductor\.exc|torch\._dynamo\.exc|BackendCompilerFailed",
            r"C(?:pp|uda|xx)?CompileError|InvalidCxxCompiler|CUDACompileError",
            r"triton\.compiler\.errors|triton\S*CompilationError|PTXASError"
            r"|PassManager::run failed",
            r"CompilationError\b|LLVM ERROR",
            r"(?:triton|inductor|dynamo|nvrtc|ptxas|kernel|jit|flashinfer|deep_?gemm"
            r"|tilelang|cutlass|cpp|c\+\+).{0,40}compil\w*.{0,30}"
            r"(?:fail|error|crash|abort)",
            r"(?:fail\w*|error|crash\w*|unable) .{0,40}"
            r"(?:compil(?:e|ing|ation)|codegen)\b",
            r"compilation (?:failed|error|terminated|aborted)",
            r"ninja: (?:build stopped|error|fatal)|ninja build failed"
            r"|Ninja is required",
            r"error building extension|subcommand failed",
            r"CUDA_HOME.{0,40}(?:not set|not found|environment variable|unset)",
            r"ptxas (?:fatal|error|failed|info.{0,20}error)|NVRTC_ERROR|nvrtc: error",
            r"torch\.compile\b.{0,40}(?:fail|crash|error)",
            r"(?:Unsupported|Unhandled): .{0,60}(?:dynamo|graph break|fullgraph)",
            r"Command .{0,30}['\"/](?:g?cc|g\+\+|nvcc|clang|ninja)\b.{0,2000}"
            r"non-zero exit",
        ),
    ),
    # -- hardware ---------------------------------------------------------------
    Rule(
        "unsupported_hardware",
        Rank.CAUSE,
        _any(
            r"(?:compute|cuda|device|gpu) capability.{0,160}(?:not|below|at least"
            r"|require|minimum|higher|lower|only|unsupported|less|or (?:above|newer))",
            r"(?:not support\w*|below|at least|requires?|minimum|only|unsupported)"
            r".{0,80}(?:compute|cuda|device|gpu) capability",
            r"minimum capability: ?\d+|compute capability not supported",
            r"no kernel image|invalid device function|kernel image is invalid"
            r"|named symbol not found|provided PTX was compiled",
            r"hipError(?:InvalidImage|NoBinaryForGpu|InvalidDeviceFunction)"
            r"|cudaErrorNoKernelImage|No compatible code objects"
            r"|HSA_STATUS_ERROR_INVALID_ISA",
            r"no (?:cuda|hip|xpu|nvidia|rocm)[- ]?(?:capable )?(?:gpus?|devices?)",
            r"(?:found )?no nvidia driver|driver (?:version )?is (?:too old"
            r"|insufficient)|CUDA driver initialization failed|cudaErrorInsufficient"
            r"|nvml.{0,20}not (?:found|loaded)|driver/library version mismatch",
            r"NVMLError_?\w*(?:NotFound|NotLoaded|DriverNot|Uninit|LibRm|GpuIsLost)",
            r"failed to infer device type|device string must not be empty",
            r"torch not compiled with (?:cuda|xpu|rocm)"
            r"|not compiled with .{0,20}support",
            r"(?:not|n't) (?:\w+ ){0,3}support\w*(?: \w+){0,3} (?:on|for|by|in) "
            r"(?:(?:this|your|the|current|any|older) )?(?:\w+[- ]){0,2}(?:gpus?"
            r"|devices?"
            r"|platforms?|hardware|cpus?|architectures?|rocm|xpu|tpu|hip|gfx\w+"
            r"|sm_?\d+\w*|volta|turing|ampere|hopper|blackwell"
            r"|nvidia \w+)\b(?! memory)",
            r"(?:current |this |your )?(?:gpu|device|platform|hardware|cpu) (?:\S+ )?"
            r"(?:does not|doesn't|cannot|do not) (?:\w+ )?support",
            r"only (?:be )?(?:supports?|supported on|(?:supported|available|works?"
            r"|implemented) (?:on|for|with)) "
            r"(?:\w+[- ]){0,3}(?:gpus?|cuda|rocm|hopper|blackwell|ampere|devices?"
            r"|sm_?\d+"
            r"|platforms?|xpu|tpu|cpus?)\b",
            r"requires? (?:an? |at least )?(?:\w+[- ]){0,3}(?:gpus? (?:with|of|like)"
            r"|hopper|blackwell|ampere|sm_?\d\d|cuda \d|avx\w*|amx)",
            r"unsupported (?:gpu|device|platform|hardware|cuda|arch\w*|cpu|compute"
            r"|sm)\b",
            r"\bAVX\d\w*\b.{0,60}(?:not|requir|support)|illegal instruction|\bSIGILL\b",
            r"out of resources?: shared memory|hardware limit: ?\d+|OutOfResources",
            r"\bsm_?\d{2,3}a?\b.{0,60}(?:not (?:compatible|supported)|unsupported)",
            r"(?:unsupported|not supported|no support).{0,40}\b(?:sm_?\d{2,3}|gfx\d+)",
            r"_OpNamespace\b.{0,60}no attribute|^RuntimeError: _C\w*::\w+\(\) expected"
            r"|Could not run '\S+' with arguments from the",
            r"unknown gpu|gpu arch\w* .{0,30}(?:not|unsupported)",
            r"\bgfx\d{3,4}\b.{0,60}(?:not|unsupported|invalid|fail)",
            r"CUDA error: (?:system|operation|feature) not (?:supported|yet init)",
            r"Not supported device|CUDA-capable device",
            r"Marlin .{0,60}(?:not supported|requires|unsupported)",
        ),
    ),
    # -- broken installation ----------------------------------------------------
    Rule(
        "other",
        Rank.CAUSE,
        _any(
            r"undefined symbol|symbol lookup error|DLL load failed"
            r"|version `\w+_[\d.]+' not found",
            r"\blib[\w\-+.]+\.so[.\d]*\b.{0,60}(?:cannot open|no such file|not found)",
            r"cannot open shared object file",
            r"operator \S+ does not exist|Couldn't load custom C\+\+ ops",
            r"partially initialized module|cannot import name",
            r"(?:architectures?|model type|model class)\b.{0,200}(?:not supported|not"
            r" recogni[sz]e|not \w+ supported|failed to be inspected|no vllm impl)",
            r"does not recogni[sz]e this architecture|no vllm implementation",
            r"bootstrapping phase|start a new process before the",
            r"cannot re-initialize CUDA in forked",
            r"(?:no parameter|no module or parameter) named|There is no module or",
            r"size mismatch for \S+|shapes? .{0,40}(?:cannot be multiplied|invalid for)"
            r"|weights? .{0,60}(?:not initialized from|shape mismatch)",
        ),
    ),
    # -- tokenizer --------------------------------------------------------------
    Rule(
        "tokenizer",
        Rank.CAUSE,
        _any(
            r"chat[ _-]template\b.{0,120}(?:no longer|must|required|missing|not"
            r"|invalid|error|fail|provide|undefined)",
            r"(?:no|missing|without|provide|invalid|found"
            r"|valid) (?:a )?chat[ _-]template",
            r"(?:can't|cannot|could not|couldn't|can not|failed to|unable to|error"
            r"|fail\w*"
            r"|exception)\b.{0,50}\btokenizer",
            r"tokenizer\b.{0,80}(?:does not exist|not exist|not (?:currently )?import"
            r"|missing|corrupt|fail|could not|cannot|couldn't|invalid|not found"
            r"|not defined|no attribute|not (?:\w+ )?support\w* for|mismatch"
            r"|mistral_common"
            r"|is not a valid|error|no `?\w+_token|not set|unavailable)",
            r"\w+Tokenizer(?:Fast)?['\"]?\b.{0,60}(?:has no|object|not|unexpected)",
            r"ModelWrapper|untagged enum|variant of .{0,20}enum",
            r"sentencepiece|tiktoken|spm_file|spiece\.model|tokenizer\.(?:json|model)\b"
            r"|merges\.txt|vocab\.(?:json|txt|bpe)|tekken",
            r"instantiate the backend|converting from .{0,40}fast",
            r"special_tokens_map|added_tokens\b.{0,60}(?:error|not|invalid)",
        ),
    ),
    # -- the model cannot be had ------------------------------------------------
    Rule(
        "model_unavailable",
        Rank.CAUSE,
        _any(
            r"RepositoryNotFound|GatedRepo|LocalEntryNotFound|EntryNotFound"
            r"|RevisionNotFound|HFValidation|HfHubHTTP|OfflineModeIsEnabled"
            r"|BadRequestError: .{0,40}repo|DisabledRepo|LocalTokenNotFound",
            r"gated (?:repo|model)|access to (?:this )?model .{0,60}"
            r"(?:restricted|gated|request)|restricted and you are not",
            r"\b(?:401|403|404|429|50[0-9]) (?:client|server) error",
            r"(?:http|status)\S{0,12} ?(?:code)?\W{0,3}(?:401|403|404)\b.{0,100}"
            + _HUB,
            _HUB + r".{0,80}(?:permission|denied|token|login|unauthori[sz]ed|forbidden"
            r"|unreachable|offline|connect|timed? ?out|retries|resol|not found"
            r"|unavailable|invalid|credential|authenticat|rate.?limit|ssl)",
            r"(?:permission|denied|token|unauthori[sz]ed|forbidden|connect\w*|reach"
            r"|offline"
            r"|download\w*|retries|resolve|login|authenticat\w*)\b.{0,80}" + _HUB,
            r"not a valid (?:model identifier|repo|JSON)",
            r"repo(?:sitory)?[ _](?:id|name)\b.{0,60}(?:must|invalid|not)"
            r"|invalid repository id",
            r"is not a local folder|local (?:model )?(?:directory|path|folder)"
            r".{0,40}(?:not|invalid|does)",
            r"cannot find (?:any )?(?:model )?weights|no (?:model )?weights? files?"
            r"|(?:can't|cannot|could not|couldn't) (?:find|load|locate) "
            r"(?:the )?(?:model|configuration|config|weights|image processor|processor)"
            r"|no file named .{0,60}(?:found|in )",
            r"does not appear to have (?:a file|files) named",
            r"(?:no such file or directory|filenotfound\w*|not found|does not exist|"
            r"doesn't exist|missing)\b.{0,200}" + _WEIGHT_FILE,
            _WEIGHT_FILE + r".{0,100}(?:no such file|not found|does not exist|missing"
            r"|not exist|permission denied|unable to load)",
            r"(?:model|checkpoint|weights?)\b.{0,60}(?:does not exist|doesn't exist"
            r"|not exist|cannot be found|could not be found|not found|unavailable"
            r"|was not found|couldn't be found)",
            r"unable to (?:load|open|find) (?:weights|the config|config|checkpoint"
            r"|model)",
            r"couldn't connect to|we couldn't|temporary failure in name resolution"
            r"|failed to resolve|name or service not known"
            r"|Max retries exceeded with url"
            r"|NameResolutionError",
            r"safetensor\w*\b.{0,60}(?:header|incomplete|invalid|deserializ|corrupt)"
            r"|(?:header|deserializ\w*|incomplete metadata)\b.{0,60}safetensor"
            r"|PytorchStreamReader|invalid load key|HeaderTooLarge|InvalidHeader"
            r"|MetadataIncompleteBuffer|git-?lfs|lfs pointer",
            r"Unrecogni[sz]ed model in|should have a `?model_type"
            r"|no (?:config|params)\.json|config(?:uration)?\b.{0,20} (?:file )?"
            r"(?:not found|missing)",
            r"NoSuchKey|NoSuchBucket|NoCredentialsError",
        ),
    ),
    # -- settings that cannot be ------------------------------------------------
    Rule(
        "invalid_config",
        Rank.CAUSE,
        _any(
            r"error: (?:argument|unrecogni[sz]ed arguments|the following arguments|"
            r"ambiguous option|one of the arguments)",
            r"invalid choice: |unrecogni[sz]ed arguments|expected (?:one|at least one)"
            r" argument|not allowed with argument|No such option",
            r"(?:Args|Config|LLM|Engine)(?:\.__init__)?(?:\(\))? got an unexpected"
            r"|^TypeError: __init__\(\) got an unexpected keyword",
            r"world.?size\b.{0,80}(?:larger|greater|exceed|less than|more than|must"
            r"|max local)|number of (?:required |available )?gpus\b.{0,80}(?:exceed"
            r"|less"
            r"|larger|than)",
            r"(?:bigger|larger|greater|longer) than the (?:derived )?max(?:_model_len)?"
            r"|derived max_model_len",
            r"heads?\b.{0,60}divisible|divisible by .{0,40}(?:parallel|world|size)"
            r"|not (?:divisible|aligned|a multiple)",
            r"unknown quantization|quantization method .{0,80}(?:not|does|doesn't"
            r"|must)",
            r"(?:Pipeline|tensor|expert|data|context) parallel\w*\b.{0,80}"
            r"(?:not|only|must|require)",
            r"speculative .{0,60}(?:not|only|must|require|unsupported)",
        ),
    ),
    Rule(
        "invalid_config",
        Rank.CAUSE,
        _any(
            r"^(?:ValueError: )?value error, .{0,4000}",
            _REFUSING + r".{0,300}" + SETTING + r".{0,200}" + REFUSED,
            _REFUSING + r".{0,300}" + REFUSED + r".{0,200}" + SETTING,
        ),
    ),
    # -- the device failed under the engine -----------------------------------
    Rule(
        "engine_dead",
        Rank.LIKELY,
        _any(
            r"illegal (?:memory access|address|instruction was)|device-side assert"
            r"|unspecified launch failure|misaligned address|uncorrectable ECC"
            r"|fallen off the bus|HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY)|memory access"
            r" fault|GPU core ?dump|segmentation fault|SIGSEGV",
        ),
    ),
    # -- communication ----------------------------------------------------------
    Rule(
        "communication",
        Rank.LIKELY,
        _any(
            r"\b[NRHM]CCL\b.{0,60}(?:error|fail|timed? ?out|abort|unhandled|invalid"
            r"|hang"
            r"|hung|stuck|watchdog|not)|ncclComm\w*|nccl\w+Error|NCCL_ERROR"
            r"|ncclUnhandled\w*|ncclSystemError|ncclInternalError|ncclRemoteError",
            r"(?:error|fail\w*|timed? ?out|exception|abort\w*|hang\w*|stuck).{0,60}"
            r"\b[NRHM]CCL\b",
            r"\bgloo\b.{0,80}(?:error|fail|timed|connect|EnforceNotMet|refused|reset)"
            r"|connectFullMesh|Gloo \w+ failed",
            r"Dist(?:Network|Backend|Store|)Error|TCPStore\b|ProcessGroup\w*.{0,60}"
            r"(?:error|timed|fail|abort|exception)",
            r"c10d?::?\w*(?:error|timeout)|c10d\b.{0,60}(?:fail|timed|error)"
            r"|init_process_group.{0,60}(?:fail|timed|error|timeout)|rendezvous",
            r"(?:client|server) socket has (?:failed|timed)|socket (?:timeout|error)"
            r"|(?:wait|recv|recvValue|broken) (?:timeout|pipe) .{0,30}(?:rank|store)",
            r"connection (?:reset|closed|refused|aborted|timed out) by? ?(?:peer"
            r"|remote)?"
            r"|connection refused|broken pipe|ECONNREFUSED|no route to host",
            r"collective (?:operation )?.{0,30}(?:time|mismatch|fail)|watchdog caught"
            r"|all_?reduce\b.{0,40}(?:fail|error|timed)|ibv_\w+|infiniband|IBV_"
            r"|nvshmem|NVSHMEM|peer access|p2p .{0,30}(?:fail|not|error)",
            r"\bray\b.{0,80}(?:gcs|cluster|node|placement group|raylet|actor).{0,60}"
            r"(?:fail|died|not|timed|unavailable|lost|cannot|disconnected)"
            r"|RaySystemError|RayActorError|raylet|GCS\b.{0,30}(?:fail|connect)",
            r"zmq\.error|ZMQError|interface .{0,40}not found|unable to find (?:address|"
            r"interface)|\bNIXL\b.{0,60}(?:error|fail)|mooncake.{0,60}(?:error|fail)"
            r"|\bUCX\b.{0,60}(?:error|fail)",
        ),
    ),
    # -- settings, by the look of the line --------------------------------------
    Rule(
        "invalid_config",
        Rank.LIKELY,
        _any(
            r"\d+ validation errors? for \w*(?:Config|Args)",
            r"^(?:TypeError|KeyError|RuntimeError|Exception)\W.{0,300}"
            + SETTING
            + r".{0,200}"
            + REFUSED,
        ),
    ),
    Rule(
        "invalid_config",
        Rank.GENERIC,
        _any(
            SETTING + r".{0,120}" + REFUSED,
            REFUSED + r".{0,120}" + SETTING,
        ),
    ),
    Rule(
        "tokenizer",
        Rank.LIKELY,
        _any(r"\btokeniz(?:er|ation)\b.{0,80}(?:error|fail|crash|cannot|not)"),
    ),
    # -- a request's own fault --------------------------------------------------
    Rule(
        "request",
        Rank.REQUEST,
        _any(
            r"maximum context length is|please reduce the length|prompt .{0,60}"
            r"(?:longer than|too long|empty|exceed)|BadRequestError|\" 4\d\d\b"
            r"|error code: 4\d\d|400 bad request|max_tokens .{0,40}(?:must|too large)"
            r"|decoder prompt cannot be empty|model `?\S+ does not exist",
        ),
        even_quiet=True,
    ),
    Rule(
        "engine_dead",
        Rank.SYMPTOM,
        _any(r"(?:worker|process) \w* ?died or was killed|worker exit(?:ed)? unexpect"),
        even_quiet=True,
    ),
    # -- symptoms ---------------------------------------------------------------
    Rule(
        "engine_dead",
        Rank.SYMPTOM,
        _any(
            r"Engine\w*Dead\w*|engine (?:is |was )?(?:already )?dead"
            r"|EngineGenerateError"
            r"|EngineCore encountered|AsyncEngineDead|background loop (?:has|is)",
            r"(?:worker|engine|process|proc|core|server|child)\w*\b.{0,60}\b"
            r"(?:died|dead|crash\w*|terminated unexpectedly|exited unexpectedly"
            r"|stopped unexpectedly|unexpectedly)",
            r"\bdied\b|exit ?code: ?-?\d+|\b(?:hang|hung|hangs|hanging|stuck)\b",
            r"timed? ?out\b|timeout(?:error)?\b",
            r"\bvllm\b.{0,40}\b(?:crash\w*|died|hang\w*|hung|stuck|freez\w*|killed)",
            r"\bSIGABRT\b|core dumped|fatal python error"
            r"|\bSIGTERM\b|\bSIGINT\b|KeyboardInterrupt|fatal signal",
            r"\bXid\b|CUDA error|HIP error|AcceleratorError",
            r"failed core proc|engine core initialization failed|engine process failed"
            r"|failed to start|WorkerProc (?:hit|init\w+ failed)|fatal error\."
            r"|shutting down|cancelled",
        ),
    ),
)

# Lines that are said of failed and of healthy runs alike.
NOISE: Final = _any(
    r"shared memory broadcast block|no available block found in \d+",
    r"leaked \w+ objects|destroy_process_group",
    r"^frame #\d+: |^Exception raised from \w+ at ",
    r"might be asynchronously reported|consider passing CUDA_LAUNCH_BLOCKING"
    r"|TORCH_USE_CUDA_DSA|^Search for `\w+' in http",
)

# Exceptions that other failures cause in their neighbours.
CASCADES: Final = frozenset(
    {
        "BrokenPipeError",
        "CancelledError",
        "ConnectionResetError",
        "EOFError",
        "EngineDeadError",
        "EngineGenerateError",
        "GeneratorExit",
        "KeyboardInterrupt",
        "SystemExit",
    }
)
# Types that vLLM raises for what it was asked, when no words tell more.
REFUSALS: Final = frozenset({"NotImplementedError", "ValidationError", "ValueError"})
# What a traceback was about when only its frames are there.
FRAMES: Final = (
    ("compile_error", _any(r"/_inductor/|/_dynamo/|triton/(?:compiler|runtime/build)")),
    ("tokenizer", _any(r"tokeniz(?:er|ation)")),
    ("remote_code", _any(r"transformers_modules|dynamic_module_utils")),
    ("model_unavailable", _any(r"huggingface_hub|utils/hub\.py")),
    (
        "invalid_config",
        _any(r"arg_utils|get_attn_backend|attention/selector|vllm/config|argparse"),
    ),
    ("communication", _any(r"torch/distributed|pynccl|parallel_state")),
)

# Somebody ended the engine: a person, a supervisor, a job's time limit.
ENDED: Final = _any(
    r"KeyboardInterrupt|\bSIGTERM\b|\bSIGINT\b|exit ?code:? ?-?(?:2|15|130|143)\b"
)
