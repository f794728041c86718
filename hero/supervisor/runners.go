package supervisor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"edda/hero"
)

// runnersHash maps the names of registered runners to their queues. It is in database 0,
// because a runner works for every context.
const runnersHash = "edda:supervisor:runners"

type registerParams struct {
	Secret string `json:"secret,omitempty"`
	Name   string `json:"name"`
	Queue  string `json:"queue"`
}

// register keeps a runner's name and the list that it takes jobs from.
func (s *Server) register(ctx context.Context, p registerParams) (any, error) {
	if _, err := s.allow(ctx, p.Secret, Registrar); err != nil {
		return nil, err
	}
	if err := checkRunner(p.Name, p.Queue); err != nil {
		return nil, invalid("%v", err)
	}
	c, err := s.db.Client(0)
	if err == nil {
		err = c.HSet(ctx, runnersHash, p.Name, p.Queue).Err()
	}
	if err != nil {
		return nil, storage(err)
	}
	return nil, nil
}

// runners returns the queues of all registered runners by name.
func (s *Server) runners(ctx context.Context) (map[string]string, error) {
	c, err := s.db.Client(0)
	if err != nil {
		return nil, err
	}
	all, err := c.HGetAll(ctx, runnersHash).Result()
	if err != nil {
		return nil, fmt.Errorf("read the registered runners: %w", err)
	}
	for name, queue := range s.o.Runners {
		if _, ok := all[name]; !ok {
			all[name] = queue
		}
	}
	return all, nil
}

type noParams struct {
	Secret string `json:"secret,omitempty"`
}

// listRunners gives the names. The documents ask for no secret here.
func (s *Server) listRunners(ctx context.Context, _ noParams) ([]string, error) {
	all, err := s.runners(ctx)
	if err != nil {
		return nil, storage(err)
	}
	return append([]string{}, slices.Sorted(maps.Keys(all))...), nil
}

// queueFor returns the queue of a job: of the runner that it names, else of a runner for
// its executor.
func queueFor(j Job, runners map[string]string) (string, error) {
	if queue, ok := runners[j.Runner]; ok {
		return queue, nil
	}
	want := hero.ScriptType(j.Executor).Queue()
	for _, name := range slices.Sorted(maps.Keys(runners)) {
		if name == j.Executor || runners[name] == want {
			return runners[name], nil
		}
	}
	return "", fmt.Errorf("no runner is registered for runner %.40q or executor %.40q: register_runner one, or choose among %v",
		j.Runner, j.Executor, slices.Sorted(maps.Keys(runners)))
}

type runnerParams struct {
	Secret string `json:"secret,omitempty"`
	Name   string `json:"name"`
}

type runnerStatus struct {
	Name  string `json:"name"`
	Queue string `json:"queue"`
	// Waiting counts the jobs in its list, over all contexts.
	Waiting int64 `json:"waiting"`
}

func (s *Server) runnerStatus(ctx context.Context, p runnerParams) (runnerStatus, error) {
	if _, err := s.allow(ctx, p.Secret, Registrar, User); err != nil {
		return runnerStatus{}, err
	}
	all, err := s.runners(ctx)
	if err != nil {
		return runnerStatus{}, storage(err)
	}
	queue, ok := all[p.Name]
	if !ok {
		return runnerStatus{}, notFound("no runner %.40q is registered", p.Name)
	}
	out := runnerStatus{Name: p.Name, Queue: queue}
	contexts, err := s.db.Contexts(ctx)
	if err != nil {
		return runnerStatus{}, storage(err)
	}
	for _, c := range contexts {
		n, err := s.db.Depth(ctx, c, queue)
		if err != nil {
			return runnerStatus{}, storage(err)
		}
		out.Waiting += n
	}
	return out, nil
}
