package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"edda/hero"
	"edda/hero/redisdb"
)

// idParams name a job. Its id is enough where only one context and one caller
// have a job of that id.
type idParams struct {
	Secret    string `json:"secret,omitempty"`
	JobID     ID     `json:"job_id,omitempty"`
	ID        ID     `json:"id,omitempty"` // the same, for clients that call it so
	CallerID  ID     `json:"caller_id,omitempty"`
	ContextID ID     `json:"context_id,omitempty"`
}

// named checks the caller and finds the job that is meant.
func (s *Server) named(ctx context.Context, p idParams) (hero.Job, error) {
	if err := s.allow(ctx, p.Secret, User); err != nil {
		return hero.Job{}, err
	}
	at, err := s.find(ctx, p)
	if err != nil {
		return hero.Job{}, err
	}
	return s.load(ctx, at)
}

// address is where a job lies.
type address struct{ context, caller, id uint32 }

func (s *Server) load(ctx context.Context, at address) (hero.Job, error) {
	j, err := s.db.Job(ctx, at.context, at.caller, at.id)
	if err != nil {
		return hero.Job{}, failed(err, "job %d of caller %d in context %d", at.id, at.caller, at.context)
	}
	return j, nil
}

// find tells where the job lies.
func (s *Server) find(ctx context.Context, p idParams) (address, error) {
	want, err := p.ids()
	if err != nil {
		return address{}, invalid("%v", err)
	}
	if want.context != 0 && want.caller != 0 {
		return want, nil
	}
	contexts := []uint32{want.context}
	if want.context == 0 {
		if contexts, err = s.contexts(ctx); err != nil {
			return address{}, storage(err)
		}
	}
	found, err := s.candidates(ctx, contexts, want)
	switch {
	case err != nil:
		return address{}, storage(err)
	case len(found) == 0:
		return address{}, notFound("no job %d", want.id)
	case len(found) > 1:
		return address{}, invalid("%d jobs have the id %d: give context_id and caller_id", len(found), want.id)
	}
	return found[0], nil
}

func (p idParams) ids() (address, error) {
	id := p.JobID
	if id == "" {
		id = p.ID
	}
	if id == "" {
		return address{}, fmt.Errorf("job_id is missing")
	}
	var out address
	var err error
	if out.id, err = id.Uint32("job_id"); err != nil {
		return address{}, err
	}
	if p.CallerID != "" {
		if out.caller, err = p.CallerID.Uint32("caller_id"); err != nil {
			return address{}, err
		}
	}
	if p.ContextID != "" {
		if out.context, err = p.ContextID.Uint32("context_id"); err != nil {
			return address{}, err
		}
	}
	return out, nil
}

// candidates asks the contexts' indexes, which every job that came here is in.
func (s *Server) candidates(ctx context.Context, contexts []uint32, want address) ([]address, error) {
	var out []address
	for _, c := range contexts {
		db, err := s.db.Client(c)
		if err != nil {
			return nil, err
		}
		callers, err := db.SMembers(ctx, hero.JobCallersKey(want.id)).Result()
		if err != nil {
			return nil, fmt.Errorf("look job %d up in context %d: %w", want.id, c, err)
		}
		slices.Sort(callers)
		for _, caller := range callers {
			n, err := strconv.ParseUint(caller, 10, 32)
			if err == nil && (want.caller == 0 || want.caller == uint32(n)) {
				out = append(out, address{c, uint32(n), want.id})
			}
		}
	}
	return out, nil
}

// list gives the jobs of every context, or of one.
func (s *Server) list(ctx context.Context, p idParams) ([]Job, error) {
	if err := s.allow(ctx, p.Secret, User); err != nil {
		return nil, err
	}
	contexts, err := s.listed(ctx, p)
	if err != nil {
		return nil, err
	}
	out := []Job{}
	for _, c := range contexts {
		jobs, err := s.db.Jobs(ctx, c)
		broken, err := redisdb.Unreadable(err)
		if err != nil {
			return nil, failed(err, "context %d", c)
		}
		for _, e := range broken {
			caller, id, err := hero.ParseJobKey(e.Key)
			if err == nil {
				jobs = append(jobs, hero.Job{ID: id, CallerID: caller, ContextID: c, Status: hero.JobError, Unreadable: e.Error()})
			}
		}
		for _, j := range jobs {
			out = append(out, FromHero(j))
		}
		if len(out) > maxListed {
			return nil, invalid("more than %d jobs: give context_id", maxListed)
		}
	}
	return out, nil
}

func (s *Server) listed(ctx context.Context, p idParams) ([]uint32, error) {
	if p.ContextID != "" {
		n, err := p.ContextID.Uint32("context_id")
		if err != nil {
			return nil, invalid("%v", err)
		}
		return []uint32{n}, nil
	}
	contexts, err := s.contexts(ctx)
	if err != nil {
		return nil, storage(err)
	}
	return contexts, nil
}

// gone: a job that was deleted, or that somebody broke, is nothing to wait for.
func gone(err error) error {
	var broken *hero.FieldError
	if errors.Is(err, redisdb.ErrNotFound) || errors.As(err, &broken) {
		return nil
	}
	return err
}

// contextsSet holds the contexts that jobs came for, in database 0: a supervisor
// may have a Redis of its own, in which nobody creates contexts.
const contextsSet = "edda:supervisor:contexts"

// visit takes note of a context that a job is for.
func (s *Server) visit(ctx context.Context, id uint32) error {
	c, err := s.db.Client(0)
	if err != nil {
		return err
	}
	return s.db.Explain("note a context", 0, c.SAdd(ctx, contextsSet, id).Err())
}

// contexts are those that jobs came for and those that there are.
func (s *Server) contexts(ctx context.Context) ([]uint32, error) {
	out, err := s.db.Contexts(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.db.Client(0)
	if err != nil {
		return nil, err
	}
	visited, err := c.SMembers(ctx, contextsSet).Result()
	if err != nil {
		return nil, s.db.Explain("look for contexts", 0, err)
	}
	for _, v := range visited {
		if n, err := strconv.ParseUint(v, 10, 32); err == nil {
			out = append(out, uint32(n))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
