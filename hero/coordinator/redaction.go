package coordinator

import (
	"context"
	"slices"

	"edda/hero"
)

// redaction hides the values of secret variables from callers who may only read:
// executors and admins need them, and the object's creator knows them.
type redaction struct {
	patterns []string
	caller   uint32
	off      bool
}

// redaction is what the caller, who may read the context, sees its objects through.
func (c *Coordinator) redaction(ctx context.Context, id uint32, w callerParams) (redaction, error) {
	caller, err := c.caller(ctx, w)
	if err != nil || caller == noCaller { // without tokens a call that names no caller has all rights, as elsewhere
		return redaction{off: true}, err
	}
	space, err := c.context(ctx, id)
	return redaction{patterns: c.options.Secrets, caller: caller, off: space.MayExecute(caller)}, err
}

func (v redaction) job(j hero.Job) hero.Job {
	if v.off || j.CallerID == v.caller {
		return j
	}
	j.EnvVars, j.OwnEnv = hero.MaskSecrets(v.patterns, j.EnvVars), hero.MaskSecrets(v.patterns, j.OwnEnv)
	return j
}

func (v redaction) flow(f hero.Flow) hero.Flow {
	if v.off || f.CallerID == v.caller {
		return f
	}
	f.EnvVars = hero.MaskSecrets(v.patterns, f.EnvVars)
	return f
}

func (v redaction) message(m hero.Message) hero.Message {
	if v.off || m.CallerID == v.caller {
		return m
	}
	m.Job = slices.Clone(m.Job)
	for i := range m.Job {
		m.Job[i] = v.job(m.Job[i])
	}
	return m
}
