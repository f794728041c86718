package script

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda/hero"
)

// Options of a host. The zero value works.
type Options struct {
	// Interpreters are the command lines by script type; each reads the script on
	// its standard input. One that is not installed is an error. nil means those
	// of the documented types that are installed here.
	Interpreters map[string][]string
	// Dir holds the audit record, and for each context a folder of its logs and
	// temporary files. By default a folder of this user in the system's temporary one.
	Dir    string
	Limits Limits
	// Secrets are patterns of the names of variables whose values are masked,
	// where * stands for anything and case does not matter. nil means hero.SecretNames.
	Secrets []string
	// Sandbox, where set, is how far every run is shut off.
	Sandbox *Sandbox
	Log     *zap.Logger
}

// Limits of one run. A zero means the default, which is in brackets; a negative
// one means none.
type Limits struct {
	Timeout   time.Duration // where the job gives none (10 min)
	Grace     time.Duration // between being asked to end and being killed (5 s)
	Source    int           // bytes of a script (1 MiB)
	Output    int           // bytes of stdout, and as many of stderr (1 MiB)
	Memory    int64         // bytes that all its processes hold together (1 GiB)
	CPU       time.Duration // that all its processes use together (1 h)
	FileSize  int64         // bytes of one file that it writes (256 MiB)
	Disk      int64         // bytes in its temporary folder (1 GiB)
	Processes int           // at once (64)
	OpenFiles int           // of one process (1024)
	// Of logs: bytes of one before it is rotated (1 MiB), older parts that are kept
	// beside it (1), files that a context keeps, the oldest go first (1000), and how long
	// ago a file that is kept was written (30 days).
	LogSize      int64
	LogRotations int
	LogFiles     int
	LogAge       time.Duration
}

// logs are the bounds of the logs.
func (l Limits) logs() LogBounds {
	return LogBounds{Size: l.LogSize, Rotations: l.LogRotations, Files: l.LogFiles, Age: l.LogAge}
}

// The bounds of an environment. The kernel refuses longer strings at exec, with
// an error that does not say which.
const (
	maxVariable    = 128<<10 - 1 // bytes of NAME=value
	maxEnvironment = 1 << 20     // bytes of all
	maxVariables   = 4096
)

// Defaults are the interpreters of the documented script types.
func Defaults() map[string][]string {
	return map[string][]string{
		"python": {"python3", "-"},
		"bash":   {"bash", "-s"},
		"v":      {"v", "run", "-"},
		"osis":   {"osis", "-"},
		"sal":    {"sal", "-"},
		"rhai":   {"rhai", "-"},
	}
}

// validate fills the defaults.
func (o *Options) validate() error {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Secrets == nil {
		o.Secrets = hero.SecretNames()
	}
	for _, pattern := range o.Secrets {
		if _, err := path.Match(strings.ToUpper(pattern), ""); err != nil {
			return fmt.Errorf("secrets: %q is no pattern of names: %w", pattern, err)
		}
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(os.TempDir(), "edda-scripts-"+strconv.Itoa(os.Getuid()))
	}
	if o.Sandbox != nil {
		s := *o.Sandbox
		s.validate()
		o.Sandbox = &s
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("folder of scripts: %w", err)
	}
	o.Dir = dir
	o.Limits = o.Limits.filled()
	if err := o.Limits.logs().Check(); err != nil {
		return err
	}
	return o.find()
}

// find replaces each interpreter's program by its absolute path.
func (o *Options) find() error {
	given, must := o.Interpreters, true
	if given == nil {
		given, must = Defaults(), false
	}
	o.Interpreters = map[string][]string{}
	for kind, line := range given {
		if !typeName.MatchString(kind) {
			return fmt.Errorf("interpreters: %q is no script type: %s", kind, typeWords)
		}
		if len(line) == 0 {
			return fmt.Errorf("interpreter of %s: no command: give it as a list, as [python3, -]", kind)
		}
		program, err := exec.LookPath(line[0])
		if err != nil && must {
			return fmt.Errorf("interpreter of %s: %w: install it, or take %s out of the interpreters", kind, err, kind)
		}
		if err != nil {
			continue
		}
		if program, err = filepath.Abs(program); err != nil {
			return fmt.Errorf("interpreter of %s: %w", kind, err)
		}
		o.Interpreters[kind] = append([]string{program}, line[1:]...)
	}
	return nil
}

const (
	defaultTimeout   = 10 * time.Minute
	defaultGrace     = 5 * time.Second
	defaultSource    = 1 << 20
	defaultOutput    = 1 << 20 // it becomes a field of a hash and part of messages
	defaultMemory    = 1 << 30
	defaultCPU       = time.Hour
	defaultFileSize  = 256 << 20
	defaultDisk      = 1 << 30
	defaultProcesses = 64
	defaultOpenFiles = 1024
	defaultLogSize   = 1 << 20
	// The defaults of logs elsewhere, too.
	DefaultLogRotations = 1
	DefaultLogFiles     = 1000
	DefaultLogAge       = 30 * 24 * time.Hour
)

func (l Limits) filled() Limits {
	fill(&l.Timeout, defaultTimeout)
	fill(&l.Grace, defaultGrace)
	fill(&l.Source, defaultSource)
	fill(&l.Output, defaultOutput)
	fill(&l.Memory, defaultMemory)
	fill(&l.CPU, defaultCPU)
	fill(&l.FileSize, defaultFileSize)
	fill(&l.Disk, defaultDisk)
	fill(&l.Processes, defaultProcesses)
	fill(&l.OpenFiles, defaultOpenFiles)
	fill(&l.LogSize, defaultLogSize)
	fill(&l.LogRotations, DefaultLogRotations)
	fill(&l.LogFiles, DefaultLogFiles)
	fill(&l.LogAge, DefaultLogAge)
	return l
}

func fill[T int | int64 | time.Duration](v *T, to T) {
	if *v == 0 {
		*v = to
	}
}

// over tells whether a use is more than its limit.
func over[T int | int64 | time.Duration](use, limit T) bool { return limit > 0 && use > limit }
