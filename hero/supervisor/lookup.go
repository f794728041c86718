package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"edda/hero"
	"edda/hero/redisdb"
)

// meant checks the caller and finds the job that is meant.
func (s *Server) meant(ctx context.Context, p hero.JobQuery) (hero.Job, error) {
	k, err := s.allow(ctx, p.Secret, User)
	if err != nil {
		return hero.Job{}, err
	}
	at, err := s.find(ctx, p, k)
	if err != nil {
		return hero.Job{}, err
	}
	j, err := s.load(ctx, at)
	if _, name, _ := jobID(p); err == nil && j.Name != name && name != "" {
		return hero.Job{}, notFound("no job %q", name)
	}
	return j, err
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
func (s *Server) find(ctx context.Context, p hero.JobQuery, k Key) (address, error) {
	want, err := addressOf(p)
	if err != nil {
		return address{}, invalid("%v", err)
	}
	if want.context != 0 && want.caller != 0 {
		if !k.admits(want.context, want.caller) {
			return address{}, notFound("no job %d that the secret is for", want.id)
		}
		return want, nil
	}
	contexts := []uint32{want.context}
	if want.context == 0 {
		if contexts, err = s.contexts(ctx); err != nil {
			return address{}, storage(err)
		}
	}
	found, err := s.candidates(ctx, contexts, want)
	found = slices.DeleteFunc(found, func(a address) bool { return !k.admits(a.context, a.caller) })
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

// jobID is the job's number, and its name where it has one.
func jobID(p hero.JobQuery) (uint32, string, error) {
	id := cmp.Or(p.JobID, p.ID)
	if id == "" {
		return 0, "", fmt.Errorf("job_id is missing")
	}
	return jobNumber("job_id", id)
}

func addressOf(p hero.JobQuery) (address, error) {
	var out address
	var err error
	if out.id, _, err = jobID(p); err != nil {
		return address{}, err
	}
	if p.CallerID != "" {
		if out.caller, err = numbered("caller_id", p.CallerID, callerWords); err != nil {
			return address{}, err
		}
	}
	if p.ContextID != "" {
		if out.context, err = numbered("context_id", p.ContextID, contextWords); err != nil {
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
func (s *Server) list(ctx context.Context, p hero.JobQuery) ([]Job, error) {
	k, err := s.allow(ctx, p.Secret, User)
	if err != nil {
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
			if k.admits(c, j.CallerID) {
				out = append(out, FromHero(j))
			}
		}
		if len(out) > maxListed {
			return nil, invalid("more than %d jobs: give context_id", maxListed)
		}
	}
	return out, nil
}

func (s *Server) listed(ctx context.Context, p hero.JobQuery) ([]uint32, error) {
	if p.ContextID != "" {
		n, err := numbered("context_id", p.ContextID, contextWords)
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

// contexts are those that there are in this Redis: jobs of others are refused.
func (s *Server) contexts(ctx context.Context) ([]uint32, error) { return s.db.Contexts(ctx) }
