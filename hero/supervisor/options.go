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
	// defaultTimeout is that of a job that gives none: long enough for real work,
	// short enough that a call that nobody answers ends within a working day.
	defaultTimeout = time.Hour
	// defaultGrace goes on top of a job's timeout: the runner ends the script
	// first and says so.
	defaultGrace = 30 * time.Second
	// defaultSweep is how often jobs are looked for whose time has passed.
	defaultSweep = 5 * time.Second
	// maxListed bounds the jobs of one jobs.list.
	maxListed = 10_000
	// maxCalls bounds the HTTP calls at once: nearly all of them are job.run that
	// wait for their job.
	maxCalls = 4096
)

// Options of a server. The zero value of each field works, except that there
// must be a secret of an administrator.
type Options struct {
	// Secrets of each scope, as values; keys made by auth.create_key come on top.
	Admins, Registrars, Users []string
	// Runners are registered from the start: names with the lists they take
	// jobs from, such as "python": "queue:python".
	Runners map[string]string
	// Contexts are served although this Redis has no hash of them, as on a Redis of the
	// supervisor's own: their rights are kept where jobs come from, and the secret counts here.
	Contexts []uint32
	// Timeout is that of a job without one; Grace is added to every job's.
	Timeout, Grace time.Duration
	// Sweep is how often Run looks for jobs whose time has passed.
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

// freeName is a list's name of a runner's own choice: no object's key, which has a colon.
var freeName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// checkRunner: the queue is a list of ours to push to, not any key of the database.
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
