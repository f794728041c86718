package saga

import (
	"maps"
	"slices"
	"strconv"

	"edda"
	"edda/internal/jsonvalue"
)

// handle runs one handler for the trigger: let, when, cases, set, do.
func (r *run) handle(h *handler, vars map[string]any) error {
	defer r.within(r.uniquePath(h.trigger))()
	sc := r.scope(h, vars)
	ok, err := sc.isTrue(h.when)
	var chosen *branch
	if err == nil && ok && len(h.cases) > 0 {
		chosen, err = h.choose(sc)
		ok = chosen != nil
	}
	switch {
	case err != nil:
		return err
	case !ok:
		r.guarded++
		return nil
	}
	r.tr.Handlers = append(r.tr.Handlers, h.trigger)
	sets, unsets := h.set, h.unset
	if chosen != nil { // both see the old state; where both set a path, the case wins
		sets, unsets = slices.Concat(h.set, chosen.set), slices.Concat(h.unset, chosen.unset)
	}
	if err := r.assign(sc, sets, unsets); err != nil {
		return err
	}
	sc = sc.afterSet()
	if err := r.do(h.do, sc); err != nil || chosen == nil {
		return err
	}
	return r.do(chosen.do, sc)
}

// within sets the path that errors name; the returned function restores the last one.
func (r *run) within(path string) func() {
	before := r.path
	r.path = path
	return func() { r.path = before }
}

// uniquePath numbers the runs of one path within a transition, as when .undone is raised twice, so
// that each derives ids of its own.
func (r *run) uniquePath(path string) string {
	n := 1
	for _, before := range r.runs {
		if before == path {
			n++
		}
	}
	r.runs = append(r.runs, path)
	if n > 1 {
		return path + "~" + strconv.Itoa(n)
	}
	return path
}

func (r *run) scope(h *handler, vars map[string]any) *scope {
	old := view{state: r.state, steps: slices.Clone(r.in.Steps), groups: slices.Clone(r.in.Groups)}
	lets := &letValues{old: old, vars: vars, path: r.path}
	return &scope{r: r, h: h, vars: vars, old: &lets.old, lets: lets, event: r.event}
}

// choose returns the first case that is true, or nil.
func (h *handler) choose(sc *scope) (*branch, error) {
	for _, b := range h.cases {
		if ok, err := sc.isTrue(b.when); err != nil || ok {
			return b, err
		}
	}
	return nil, nil
}

// assign evaluates every set against the state before, then applies the sets and the unsets.
func (r *run) assign(sc *scope, sets []assign, unsets [][]string) error {
	values := make([]any, len(sets))
	for i, a := range sets {
		v, err := a.value.eval(sc)
		if err != nil {
			return err
		}
		values[i] = v
	}
	if len(sets)+len(unsets) == 0 {
		return nil
	}
	before, err := r.state.object()
	if err != nil {
		return r.poison("state: %v", err)
	}
	state := maps.Clone(before)
	if state == nil && len(sets) > 0 {
		state = map[string]any{}
	}
	for i, a := range sets {
		if err := jsonvalue.SetPath(state, a.path, values[i]); err != nil {
			return r.poison("%v", err)
		}
	}
	for _, path := range unsets {
		jsonvalue.UnsetPath(state, path)
	}
	r.state, r.stateSet = documentOf(state), true
	return nil
}

// do runs actions in document order, and stops when the saga ends.
func (r *run) do(actions []*action, sc *scope) error {
	status := r.in.Status
	for _, a := range actions {
		if r.in.Status != status {
			return nil
		}
		if _, err := r.act(a, sc, nil); err != nil {
			return err
		}
	}
	return nil
}

// raise runs the handler of an inner trigger, if there is one that may run now, and reports
// whether there is.
func (r *run) raise(trigger string, vars map[string]any) (bool, error) {
	if !r.handles(trigger) {
		return false, nil
	}
	before := r.guarded
	err := r.handle(r.p.plain[trigger], vars)
	if err == nil && r.guarded > before {
		r.output(edda.Output{Word: "guarded", Name: trigger})
	}
	return true, err
}

func (r *run) handles(trigger string) bool {
	h := r.p.plain[trigger]
	return h != nil && r.mayRun(h)
}

// mayRun reports whether a handler runs in the instance's status. After the end and while the
// instance undoes, only handlers with late: do.
func (r *run) mayRun(h *handler) bool { return r.running() || h.src.Late }

// late records that the trigger came too late.
func (r *run) late(name string) {
	r.isLate = true
	r.output(edda.Output{Word: "late", Name: name})
}
