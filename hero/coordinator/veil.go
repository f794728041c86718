package coordinator

import (
	"context"
	"slices"

	"edda/hero"
)

// veil hides the values of secret variables from callers who may only read:
// executors and admins need them, and whoever made the object knows them.
type veil struct {
	patterns []string
	caller   uint32
	off      bool
}

// veil is what the caller, who may read the context, sees its objects through.
func (c *Coordinator) veil(ctx context.Context, id uint32, w who) (veil, error) {
	caller, err := c.caller(ctx, w)
	if err != nil || caller == nobody { // without tokens who names nobody is let through, here as elsewhere
		return veil{off: true}, err
	}
	space, err := c.context(ctx, id)
	return veil{patterns: c.options.Secrets, caller: caller, off: space.MayExecute(caller)}, err
}

func (v veil) job(j hero.Job) hero.Job {
	if v.off || j.CallerID == v.caller {
		return j
	}
	j.EnvVars, j.OwnEnv = hero.MaskSecrets(v.patterns, j.EnvVars), hero.MaskSecrets(v.patterns, j.OwnEnv)
	return j
}

func (v veil) flow(f hero.Flow) hero.Flow {
	if v.off || f.CallerID == v.caller {
		return f
	}
	f.EnvVars = hero.MaskSecrets(v.patterns, f.EnvVars)
	return f
}

func (v veil) message(m hero.Message) hero.Message {
	if v.off || m.CallerID == v.caller {
		return m
	}
	m.Job = slices.Clone(m.Job)
	for i := range m.Job {
		m.Job[i] = v.job(m.Job[i])
	}
	return m
}
