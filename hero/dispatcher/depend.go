package dispatcher

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"edda"
)

// maxGraph bounds how many jobs a search for a cycle looks at. Beyond it a job
// is let through: nothing is run too early, a cycle would only wait for ever.
const maxGraph = 10_000

// CycleError reports a job that would wait for itself.
type CycleError struct{ Path []string }

func (e *CycleError) Error() string {
	return "its dependencies lead back to itself: " + strings.Join(e.Path, " → ")
}

// Is makes the error Permanent.
func (e *CycleError) Is(target error) bool { return target == edda.Permanent }

// acyclic follows a job's dependencies. It returns a CycleError where they lead back to the
// job.
func (l conn) acyclic(ctx context.Context, id string, deps []string) error {
	from := map[string]string{} // maps a job to the job that depends on it
	level := deps
	for _, dep := range deps {
		from[dep] = id
	}
	for len(level) > 0 && len(from) < maxGraph {
		if _, back := from[id]; back {
			return &CycleError{path(from, id)}
		}
		next, err := l.waitsOf(ctx, level)
		if err != nil {
			return err
		}
		var fresh []string
		for i, of := range level {
			for _, dep := range next[i] {
				if _, known := from[dep]; !known {
					from[dep] = of
					fresh = append(fresh, dep)
				}
			}
		}
		level = fresh
	}
	if _, back := from[id]; back {
		return &CycleError{path(from, id)}
	}
	return nil
}

// path lists the jobs of the cycle, from the job to itself.
func path(from map[string]string, id string) []string {
	out := []string{id}
	for at := from[id]; at != id; at = from[at] {
		out = append([]string{at}, out...)
	}
	return append([]string{id}, out...)
}

// waitsOf reads the dependencies of several jobs. A job that is missing or unreadable has
// none.
func (l conn) waitsOf(ctx context.Context, ids []string) ([][]string, error) {
	pipe := l.db.Pipeline()
	cmds := make([]*redis.SliceCmd, len(ids))
	for i, id := range ids {
		cmds[i] = pipe.HMGet(ctx, JobKey(id), "prerequisites", "dependencies")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([][]string, len(ids))
	for i, cmd := range cmds {
		v, err := cmd.Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			continue
		}
		if err != nil {
			return nil, trouble("follow dependencies", err)
		}
		pre, _ := v[0].(string)
		dep, _ := v[1].(string)
		j, _ := readJob(ids[i], map[string]string{"prerequisites": pre, "dependencies": dep})
		out[i] = j.Waits()
	}
	return out, nil
}
