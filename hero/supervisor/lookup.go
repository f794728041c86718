package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"edda/hero"
	"edda/hero/redisdb"
)

// aboutJob makes a method about one job: it checks the caller, finds the job and calls do.
func aboutJob[R any](s *Server, do func(context.Context, hero.Job) (R, error)) func(context.Context, hero.JobQuery) (R, error) {
	return func(ctx context.Context, p hero.JobQuery) (R, error) {
		var none R
		k, err := s.allow(ctx, p.Secret, User)
		if err != nil {
			return none, err
		}
		at, name, err := s.find(ctx, p, k)
		if err != nil {
			return none, err
		}
		j, err := s.load(ctx, at)
		if err == nil && name != "" && j.Name != name {
			err = notFound("no job %q", name)
		}
		if err != nil {
			return none, err
		}
		return do(ctx, j)
	}
}

// jobAddress names a job in Redis.
type jobAddress struct{ context, caller, id uint32 }

func (s *Server) load(ctx context.Context, at jobAddress) (hero.Job, error) {
	j, err := s.db.Job(ctx, at.context, at.caller, at.id)
	if err != nil {
		return hero.Job{}, failed(err, "job %d of caller %d in context %d", at.id, at.caller, at.context)
	}
	return j, nil
}

// find finds the job's address, and returns its name where the query has one.
func (s *Server) find(ctx context.Context, p hero.JobQuery, k Credential) (at jobAddress, name string, err error) {
	want, name, err := addressOf(p)
	if err != nil {
		return jobAddress{}, "", invalid("%v", err)
	}
	if want.context != 0 && want.caller != 0 {
		if !k.admits(want.context, want.caller) {
			return jobAddress{}, "", notFound("no job %d that the secret is for", want.id)
		}
		return want, name, nil
	}
	contexts := []uint32{want.context}
	if want.context == 0 {
		contexts, err = s.db.Contexts(ctx)
	}
	var found []jobAddress
	if err == nil {
		found, err = s.candidates(ctx, contexts, want)
	}
	found = slices.DeleteFunc(found, func(a jobAddress) bool { return !k.admits(a.context, a.caller) })
	switch {
	case err != nil:
		return jobAddress{}, "", storage(err)
	case len(found) == 0:
		return jobAddress{}, "", notFound("no job %d", want.id)
	case len(found) > 1:
		return jobAddress{}, "", invalid("%d jobs have the id %d: give context_id and caller_id", len(found), want.id)
	}
	return found[0], name, nil
}

// addressOf reads the address in a query; a context or caller that it leaves out is 0.
func addressOf(p hero.JobQuery) (at jobAddress, name string, err error) {
	id := cmp.Or(p.JobID, p.ID)
	if id == "" {
		return jobAddress{}, "", fmt.Errorf("job_id is missing")
	}
	if at.id, name, err = jobNumber("job_id", id); err == nil && p.CallerID != "" {
		at.caller, err = numbered("caller_id", p.CallerID, callerWords)
	}
	if err == nil && p.ContextID != "" {
		at.context, err = numbered("context_id", p.ContextID, contextWords)
	}
	return at, name, err
}

// candidates looks the id up in the contexts' indexes, which hold every job that this
// supervisor got.
func (s *Server) candidates(ctx context.Context, contexts []uint32, want jobAddress) ([]jobAddress, error) {
	var out []jobAddress
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
				out = append(out, jobAddress{c, uint32(n), want.id})
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
	var contexts []uint32
	if p.ContextID == "" {
		if contexts, err = s.db.Contexts(ctx); err != nil {
			return nil, storage(err)
		}
	} else {
		n, err := numbered("context_id", p.ContextID, contextWords)
		if err != nil {
			return nil, invalid("%v", err)
		}
		contexts = []uint32{n}
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
