package jobeffect

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"edda/effects"
	"edda/expression"
	"edda/hero"
	"edda/internal/files"
)

const (
	// maxScript bounds a script, in bytes.
	maxScript = 1 << 20
	// defaultSeconds is the timeout of a job that has none.
	defaultSeconds = 300
)

// request is one job to run, read from a call.
type request struct {
	job        hero.Job
	supervisor string
}

func requestOf(c effects.Call) (request, error) {
	r := request{job: hero.Job{ScriptType: hero.ScriptPython, Status: hero.JobDispatched}}
	for _, read := range []func(map[string]any) error{r.owners, r.bounds, r.variables} {
		if err := read(c.Config); err != nil {
			return r, err
		}
	}
	if t, ok := c.Config["type"]; ok {
		var err error
		if r.job.ScriptType, err = scriptType(t); err != nil {
			return r, err
		}
	}
	r.supervisor, _ = c.Config["supervisor"].(string)
	return r, r.code(c)
}

func (r *request) owners(config map[string]any) (err error) {
	if r.job.ContextID, err = number("context", config["context"]); err != nil {
		return err
	}
	r.job.CallerID, err = number("caller", config["caller"])
	return err
}

func (r *request) bounds(config map[string]any) (err error) {
	r.job.Timeout = defaultSeconds
	if t, ok := config["timeout"]; ok {
		if r.job.Timeout, err = seconds("timeout", t); err != nil {
			return err
		}
	}
	if t, ok := config["queue_timeout"]; ok {
		if r.job.QueueTimeout, err = seconds("queue_timeout", t); err != nil {
			return err
		}
	}
	if n, ok := config["retries"]; ok {
		r.job.Retries, err = retries(n)
	}
	return err
}

func (r *request) variables(config map[string]any) error {
	r.job.EnvVars = map[string]string{}
	env, ok := config["env"].(map[string]any)
	if !ok && config["env"] != nil {
		return errors.New("env is no map of names and values")
	}
	for name, v := range env {
		if v != nil {
			r.job.EnvVars[name] = expression.Text(v)
		}
	}
	return nil
}

// code reads the script, from the manifest or from a file beside it.
func (r *request) code(c effects.Call) error {
	if file, ok := c.Config["file"].(string); ok {
		text, err := read(filepath.Join(c.Folder, file))
		r.job.Script = text
		return err
	}
	text, ok := c.Config["script"].(string)
	if !ok || text == "" {
		return errors.New("script is no text")
	}
	if len(text) > maxScript {
		return tooLong()
	}
	r.job.Script = text
	return nil
}

func tooLong() error { return fmt.Errorf("the script has more than %d bytes", maxScript) }

func read(name string) (string, error) {
	text, _, err := files.Regular(name, maxScript)
	if err != nil {
		return "", fmt.Errorf("script: %w", err)
	}
	if len(text) > maxScript {
		return "", tooLong()
	}
	return string(text), nil
}

func scriptType(v any) (hero.ScriptType, error) {
	s, ok := v.(string)
	if !ok {
		return "", errors.New("type is the name of a kind of script, such as python")
	}
	return hero.ParseScriptType(s)
}

func number(name string, v any) (uint32, error) {
	n, ok := v.(int)
	if !ok || n < 1 || n > math.MaxUint32 {
		return 0, fmt.Errorf("%s is a number from 1 to %d", name, uint32(math.MaxUint32))
	}
	return uint32(n), nil
}

func retries(v any) (uint8, error) {
	n, ok := v.(int)
	if !ok || n < 0 || n > math.MaxUint8 {
		return 0, fmt.Errorf("retries is a number from 0 to %d", math.MaxUint8)
	}
	return uint8(n), nil
}

// seconds reads a duration, or a number of seconds.
func seconds(name string, v any) (uint32, error) {
	var d time.Duration
	switch v := v.(type) {
	case int:
		if v > 0 && v <= math.MaxUint32 {
			return uint32(v), nil
		}
	case string:
		parsed, err := expression.ParseDuration(v)
		if d = parsed; err == nil && d > 0 && d/time.Second < math.MaxUint32 {
			return uint32((d + time.Second - 1) / time.Second), nil
		}
	}
	return 0, fmt.Errorf("%s is a duration above zero such as 90s, or a number of seconds", name)
}
