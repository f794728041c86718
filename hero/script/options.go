package script

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"edda/hero"
)

// Options of a host. The zero value works.
type Options struct {
	// Interpreters maps a script type to the command line that reads the script from its
	// standard input. A program that is not installed is an error. nil means the installed
	// ones among Defaults.
	Interpreters map[string][]string
	// Dir holds the audit log, and a folder of logs and temporary files for each context.
	// The default is a folder of this user in the system's temporary folder.
	Dir    string
	Limits Limits
	// Secrets are patterns of the names of variables whose values are masked: * matches
	// anything, and case does not matter. nil means hero.SecretNames.
	Secrets []string
	// Sandbox, where set, isolates every run.
	Sandbox *Sandbox
	Log     *zap.Logger
}

// Bounds of an environment. At exec the kernel refuses a longer string, and its error does
// not name the variable.
const (
	maxVariable    = 128<<10 - 1 // bytes of NAME=value
	maxEnvironment = 1 << 20     // bytes of all variables
	maxVariables   = 4096
)

// Defaults returns the interpreters of the documented script types.
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
