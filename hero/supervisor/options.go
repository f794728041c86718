package supervisor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Bounds of the server.
const (
	// defaultTimeout bounds a job without a timeout: long enough for real work, and short
	// enough that a call without an answer ends within a working day.
	defaultTimeout = time.Hour
	// defaultGrace is added to a job's timeout, so that the runner can end the script and
	// report that.
	defaultGrace = 30 * time.Second
	// defaultSweep is the interval between two looks for expired jobs.
	defaultSweep = 5 * time.Second
	// maxListed bounds the jobs of one jobs.list.
	maxListed = 10_000
	// maxCalls bounds the concurrent HTTP calls. Most of them are job.run, which waits for
	// its job.
	maxCalls = 4096
)

// Options of a server. The zero value of each field works, but there must be a secret of an
// administrator.
type Options struct {
	// Admins, Registrars and Users are secrets of each scope, beside the keys of
	// auth.create_key.
	Admins, Registrars, Users []string
	// Runners maps the names of registered runners to their queues, such as "python":
	// "queue:python".
	Runners map[string]string
	// Contexts are served without a hash in this Redis, which may belong to the supervisor
	// alone. The sender of their jobs checks rights; here the secret counts.
	Contexts []uint32
	// Timeout bounds a job without one. Grace is added to every job's timeout.
	Timeout, Grace time.Duration
	// Sweep is the interval at which Run looks for expired jobs.
	Sweep time.Duration
	Log   *zap.Logger
}

func (o *Options) validate() error {
	secrets := slices.Concat(o.Admins, o.Registrars, o.Users)
	switch {
	case len(o.Admins) == 0:
		return fmt.Errorf("supervisor: an administrator's secret is needed")
	case slices.Contains(secrets, ""):
		return fmt.Errorf("supervisor: a secret is empty")
	case o.Timeout < 0 || o.Grace < 0 || o.Sweep < 0:
		return fmt.Errorf("supervisor: times must not be negative")
	}
	for name, queue := range o.Runners {
		if err := checkRunner(name, queue); err != nil {
			return fmt.Errorf("supervisor: %w", err)
		}
	}
	o.Runners = maps.Clone(o.Runners)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.Sweep = cmp.Or(o.Sweep, defaultSweep)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return nil
}

// maxName bounds the names of runners, queues and keys.
const maxName = 200

// freeName matches the name of a list. It has no colon, as the keys of objects have.
var freeName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// checkRunner refuses a queue that may be another key of the database.
func checkRunner(name, queue string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("name: a runner needs a name of at most %d bytes", maxName)
	case len(queue) > maxName || !strings.HasPrefix(queue, "queue:") && !freeName.MatchString(queue):
		return fmt.Errorf("queue: %.80q is no list of jobs: want queue:<name>, such as queue:python, or a name of letters, digits, dots, _ and -", queue)
	case strings.HasPrefix(queue, "msg_"):
		return fmt.Errorf("queue: %.80q is a list of messages: choose another name", queue)
	}
	return nil
}
