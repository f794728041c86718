package saga

import (
	"maps"
	"slices"
	"strings"

	"edda/manifests"
)

// names is every name that a manifest defines and expressions or triggers may use.
type names struct {
	steps    map[string]*manifests.Action // effects, asks, children, named commands
	groups   map[string]bool
	undoable map[string]bool
	timers   map[string]manifests.Pos
	parts    map[string]bool // of A & B triggers
	ends     bool            // some done or fail
	must     bool
}

// check checks the manifest against the rules of LANGUAGE beyond its shape.
func (c *compiler) check() {
	n := c.collect()
	for _, h := range c.p.handlers {
		for _, part := range h.src.Trigger.Parts {
			c.p.inner[part] = n.inner(part)
		}
		c.ruled(manifests.RuleTrigger, func() { c.checkTrigger(h, n) })
		c.ruled(manifests.RuleHandler, func() { c.checkHandler(h) })
		c.ruled(manifests.RuleAction, func() { c.checkBlocks(h) })
	}
	eachActions(c.p.m, func(a *manifests.Action) {
		if v := c.p.verbs[a.Kind]; v.check != nil {
			c.ruled(manifests.RuleAction, func() { v.check(c, a, n) })
		}
	})
	eachStep(c.p.verbs, c.p.m, c.checkOptional)
	for _, u := range c.uses {
		c.ruled(manifests.RuleReference, func() { c.checkRefs(u, n) })
	}
	c.checkData()
	for _, u := range c.unmarked {
		c.ruled(manifests.RuleUnmarked, func() { c.checkUnmarked(u, n) })
	}
	for _, name := range sortedKeys(n.timers) {
		if c.p.plain["timer."+name] == nil && !c.p.m.Partial {
			c.ruled(manifests.RuleTimer, func() {
				c.warnf(n.timers[name], "nobody handles timer %q: add on: timer.%s", name, name)
			})
		}
	}
	c.ruled(manifests.RuleLife, func() { c.checkLife(n) })
	if c.p.m.Auto {
		c.warnf(c.p.m.Pos, "upgrade: auto is not yet active: instances finish on the version they began with, as pinned says")
	}
}

// ruled gives the problems that a check reports a rule.
func (c *compiler) ruled(rule manifests.Rule, check func()) {
	before := len(c.problems)
	check()
	c.problems = append(c.problems[:before], c.problems[before:].Named(rule)...)
}

func (c *compiler) collect() names {
	n := names{
		steps: map[string]*manifests.Action{}, groups: c.p.groups, undoable: map[string]bool{},
		timers: map[string]manifests.Pos{}, parts: map[string]bool{},
	}
	eachActions(c.p.m, func(a *manifests.Action) { n.add(c.p.verbs, a) })
	for _, h := range c.p.handlers {
		for _, part := range h.src.Trigger.Parts {
			if len(h.src.Trigger.Parts) == 1 {
				continue // only A & B stores its parts
			}
			n.parts[part] = true
			if _, short, ok := cutLast(part, "."); ok {
				n.parts[short] = true
			}
		}
	}
	return n
}

func (n *names) add(t verbs, a *manifests.Action) {
	v, id := t[a.Kind], stepID(a)
	if v.step {
		n.steps[id] = a
	}
	if v.collect != nil {
		v.collect(n, a)
	}
	n.ends = n.ends || v.ends
	if a.Undo != nil {
		n.undoable[id] = true
	}
	if v.each {
		id = t.groupID(a)
		for _, m := range a.Do {
			n.undoable[id] = n.undoable[id] || m.Undo != nil
		}
	}
	n.must = n.must || a.Must
}

func (n *names) addCommand(a *manifests.Action) {
	if a.ID != nil {
		n.steps[a.ID.Text] = a
	}
}

func (n *names) addTimer(a *manifests.Action) { n.timers[a.Name.Text] = a.Pos }

// known reports whether a name is a step or a group.
func (n names) known(id string) bool {
	base, _, _ := cutLast(id, "[")
	return n.steps[id] != nil || n.groups[id] || n.groups[base]
}

// inner reports whether a trigger is raised by the instance itself or addressed to it. An external
// event of the same name does not run it.
func (n names) inner(trigger string) bool {
	subject, what, dotted := cutLast(trigger, ".")
	switch subject {
	case "timer", "signal", "schedule", "saga":
		return dotted
	}
	if a := n.steps[subject]; a != nil && a.Kind == verbAsk && !n.groups[subject] {
		choices := literalChoices(a)
		return what == "timeout" || len(choices) == 0 || slices.Contains(choices, what)
	}
	return dotted && n.known(subject) && (innerSuffix(what) || n.groups[subject])
}

// all lists steps and groups, to find the nearest name.
func (n names) all() []string {
	return append(sortedKeys(n.steps), sortedKeys(n.groups)...)
}

// external reports whether a trigger comes from outside the instance.
func external(h *handler) bool {
	if len(h.src.Trigger.Parts) > 1 {
		return true
	}
	subject, what, dotted := cutLast(h.trigger, ".")
	switch {
	case !dotted, subject == "signal", subject == "schedule", fullType(subject):
		return true
	case subject == "timer", subject == "saga":
		return false
	}
	return !innerSuffix(what)
}

// fullType reports whether the words before the last one of a trigger are of a CloudEvent's type: no
// step's name has a dot, but that of a member may (ship[a.b]).
func fullType(subject string) bool {
	base, _, _ := strings.Cut(subject, "[")
	return strings.Contains(base, ".")
}

func innerSuffix(s string) bool {
	return slices.Contains([]string{"ok", "failed", "timeout", "undone", "all"}, s)
}

func (c *compiler) checkTrigger(h *handler, n names) {
	pos := h.src.Trigger.Pos
	if parts := h.src.Trigger.Parts; len(parts) > 1 {
		for _, part := range parts {
			if c.p.inner[part] {
				c.errorf(pos, "%s waits for events, and %s is none: set a flag in its handler, and look at it with when", h.trigger, part)
			}
		}
		return
	}
	subject, what, dotted := cutLast(h.trigger, ".")
	if !dotted {
		return
	}
	switch subject {
	case "timer":
		if _, armed := n.timers[what]; !armed && !c.p.m.Partial {
			c.errorf(pos, "no action arms a timer %q%s", what, didYouMean(what, sortedKeys(n.timers)))
		}
	case "signal":
	case "schedule":
		var declared []string
		for _, s := range c.p.m.Schedule {
			declared = append(declared, s.Name.Text)
		}
		if !slices.Contains(declared, what) && !c.p.m.Partial {
			c.errorf(pos, "schedule: declares no %q%s", what, didYouMean(what, declared))
		}
	case "saga":
		switch {
		case what == "deadline" && c.p.m.Deadline == nil:
			c.warnf(pos, "saga.deadline never fires: the saga has no deadline:")
		case what != "failed" && what != "deadline":
			c.errorf(pos, "unknown trigger saga.%s: there are saga.failed and saga.deadline", what)
		}
	default:
		c.checkStepTrigger(pos, subject, what, n)
	}
}

// checkStepTrigger checks triggers such as <step>.ok and <ask>.<choice>. Other dotted triggers are
// aggregate events or workflow facts.
func (c *compiler) checkStepTrigger(pos manifests.Pos, id, what string, n names) {
	if fullType(id) {
		return
	}
	a := n.steps[id]
	switch {
	case what == "all" && a != nil && !n.groups[id]:
		c.errorf(pos, "%s is no group: only an each raises .all", id)
	case a != nil && a.Kind == verbAsk && !n.groups[id] && !isFact(what):
		choices := literalChoices(a)
		if what != "timeout" && len(choices) > 0 && !slices.Contains(choices, what) {
			c.errorf(pos, "ask %s has no choice %q: it has %s, and timeout", a.Name.Text, what, strings.Join(choices, ", "))
		}
	case n.groups[id] || a == nil && !innerSuffix(what):
	case a == nil && c.p.m.Partial: // it may stand in what could not be read
	case a == nil:
		c.errorf(pos, "no action makes a step %q%s", id, didYouMean(id, n.all()))
	case isFact(what) && innerSuffix(strings.ToLower(what)):
		c.warnf(pos, "%s.%s is an event %s of %s; did you mean the step's %s.%s?", id, what, what, id, id, strings.ToLower(what))
	case !innerSuffix(what) && isFact(what):
		// a fact of the child, or an aggregate that is called as a step is
	case !innerSuffix(what):
		c.errorf(pos, "%s raises ok, failed, timeout and undone, not %q", id, what)
	case what == "undone" && !n.undoable[id]:
		c.warnf(pos, "%s has no undo: %s.undone is raised only by an undo: action that finds nothing", id, id)
	}
}

// isFact reports whether a name has the form of an event's: Progress.
func isFact(name string) bool { return name[:1] == strings.ToUpper(name[:1]) }

// literalChoices returns an ask's choices, if the manifest writes them as literals.
func literalChoices(a *manifests.Action) (out []string) {
	choices := a.With.Field("choices")
	if choices == nil {
		return nil
	}
	v, _ := choices.Const()
	list, _ := v.([]any)
	for _, item := range list {
		out = append(out, text(item))
	}
	return out
}

func (c *compiler) checkHandler(h *handler) {
	ext := external(h)
	if h.src.Key != nil && !ext {
		c.errorf(h.src.Key.Pos, "%s is for an instance that is known: it takes no key", h.trigger)
	}
	if h.src.Start && !ext {
		c.errorf(h.src.Trigger.Pos, "%s comes from an instance: it cannot start one", h.trigger)
	}
	if h.src.Restart && !h.src.Start {
		c.errorf(h.src.Trigger.Pos, "restart: needs start: true")
	}
	for i, cs := range h.src.Cases {
		if !c.p.m.Partial && (cs.When == nil || strings.TrimSpace(cs.When.Source) == "true") && i < len(h.src.Cases)-1 {
			c.errorf(h.src.Cases[i+1].Pos, "this case is never reached: the one before it has no condition; put it last")
			return
		}
	}
}

// checkBlocks reports actions that can never run, and a step that is emitted twice in one
// transition.
func (c *compiler) checkBlocks(h *handler) {
	c.checkEnds(h.src.Do)
	own := map[string]bool{}
	c.checkTwice(h.src.Do, own)
	for _, cs := range h.src.Cases {
		c.checkEnds(cs.Do)
		c.checkTwice(cs.Do, maps.Clone(own))
	}
	if h.trigger == "saga.failed" {
		eachOf(h.src.Do, func(a *manifests.Action) {
			if c.p.verbs[a.Kind].ends {
				c.warnf(a.Pos, "%s does nothing here: saga.failed runs just before the end", a.Kind)
			}
		})
	}
}

func (c *compiler) checkEnds(actions []*manifests.Action) {
	for i, a := range actions {
		c.checkEnds(a.Seq)
		if c.p.verbs[a.Kind].ends && a.If == nil && i < len(actions)-1 {
			c.errorf(actions[i+1].Pos, "this never runs: %s before it ends the saga", a.Kind)
			return
		}
	}
}

// checkTwice walks the actions that one transition emits in any case.
func (c *compiler) checkTwice(actions []*manifests.Action, emitted map[string]bool) {
	for _, a := range actions {
		if a.If != nil {
			continue
		}
		id, v := "", c.p.verbs[a.Kind]
		switch {
		case v.step:
			id = stepID(a)
		case v.each:
			id = c.p.verbs.groupID(a)
		default: // a seq: its actions up to the first that it waits for
			seq := a.Seq
			if i := slices.IndexFunc(seq, func(a *manifests.Action) bool { return c.p.verbs[a.Kind].emit != nil }); i >= 0 {
				seq = seq[:i+1]
			}
			c.checkTwice(seq, emitted)
		}
		if id == "" {
			continue
		}
		if emitted[id] {
			c.errorf(a.Pos, "step %q is emitted twice at once: give one of them an id:", id)
		}
		emitted[id] = true
	}
}

func (c *compiler) checkCancel(a *manifests.Action, n names) {
	name := a.Name.Text
	if _, timer := n.timers[name]; !timer && !n.known(name) {
		c.errorf(a.Name.Pos, "there is no timer, ask or step %q to cancel%s", name, didYouMean(name, append(sortedKeys(n.timers), n.all()...)))
	}
}

func (c *compiler) checkAsk(a *manifests.Action, _ names) {
	for _, choice := range literalChoices(a) {
		if choice == "timeout" {
			c.errorf(a.Pos, "ask %s: timeout is what the ask raises when its due passes; name the choice otherwise", a.Name.Text)
		}
	}
}

func (c *compiler) checkUndo(a *manifests.Action, n names) {
	name := a.Name.Text
	base, _, _ := cutLast(name, "[")
	compensated := false
	eachActions(c.p.m, func(x *manifests.Action) {
		compensated = compensated || x.Kind == verbCompensate && (x.Name.Text == name || x.ID != nil && x.ID.Text == name)
	})
	switch {
	case a.Index != nil && n.known(name) && !n.groups[name]:
		c.errorf(a.Name.Pos, "%s is no group: only an each has members to choose from", name)
	case compensated && a.Index == nil:
	case !n.known(name):
		c.errorf(a.Name.Pos, "there is no step %q to undo%s", name, didYouMean(name, n.all()))
	case !n.undoable[name] && !n.undoable[base]:
		c.warnf(a.Name.Pos, "step %q has no undo: nothing will happen", name)
	}
}

// checkOptional warns of a handler that fails the saga in any case, because its step is optional.
func (c *compiler) checkOptional(a *manifests.Action, id string) {
	for _, outcome := range []string{"failed", "timeout"} {
		h := c.p.plain[id+"."+outcome]
		if !a.Optional || h == nil || h.src.When != nil {
			continue
		}
		eachOf(h.src.Do, func(end *manifests.Action) {
			if end.Kind == verbFail && end.If == nil {
				c.warnf(end.Pos, "%s is optional: true, and this fails the saga with it: leave one of them out", id)
			}
		})
	}
}

// checkLife warns of a saga that nothing starts or nothing ends. It is only a warning, because
// some sagas only count and remember.
func (c *compiler) checkLife(n names) {
	switch {
	case c.p.m.Partial:
	case !slices.ContainsFunc(c.p.handlers, func(h *handler) bool { return h.src.Start }):
		c.errorf(c.p.m.Pos, "nothing starts this saga: give one handler start: true")
	case !n.ends && c.p.m.Deadline == nil:
		c.warnf(c.p.m.Pos, "this saga never ends: no handler has done or fail, and there is no deadline")
	}
}

// checkRefs checks the members that an expression names.
func (c *compiler) checkRefs(u use, n names) {
	for _, ref := range u.prog.Refs() {
		if u.needsResult && ref[0] == "result" {
			c.warnf(u.expr.Pos, "this undo reads %s: after a timeout there is no result and it is null; undo by id or input where the other side allows", strings.Join(ref, "."))
		}
		if len(ref) < 2 {
			continue
		}
		switch ref[0] {
		case "step":
			c.checkStepRef(u, ref, n)
		case "seen":
			c.member(u, "seen", ref[1], sortedKeys(n.parts))
		case "config":
			c.member(u, "config", ref[1], sortedKeys(c.p.config))
		case "saga":
			c.member(u, "saga", ref[1], []string{"gen", "name", "reason", "status", "version"})
		case "meta":
			c.member(u, "meta", ref[1], []string{"aggregate", "by", "causation_id", "correlation_id", "id", "seq", "tenant", "time", "trace", "type", "version"})
		}
	}
}

func (c *compiler) member(u use, of, name string, known []string) {
	if slices.Contains(known, name) || strings.Contains(name, ".") {
		return
	}
	c.errorf(u.expr.Pos, "%s has no %q%s", of, name, didYouMean(name, known))
}

func (c *compiler) checkStepRef(u use, ref []string, n names) {
	id := ref[1]
	if !n.known(id) {
		if c.p.m.Partial {
			return
		}
		c.errorf(u.expr.Pos, "no action makes a step %q%s", id, didYouMean(id, n.all()))
		return
	}
	if len(ref) < 3 {
		return
	}
	members := []string{"attempt", "error", "input", "result", "status"}
	if n.groups[id] {
		members = []string{"errors", "failed", "ok", "pending", "results", "total"}
	}
	c.member(u, "step."+id, ref[2], members)
}

// didYouMean suggests the nearest known name, or lists them.
func didYouMean(name string, known []string) string {
	if near := manifests.Nearest(name, known); near != "" {
		return ": did you mean \"" + near + "\"?"
	}
	if len(known) == 0 || len(known) > maxListed {
		return ""
	}
	slices.Sort(known)
	return ": there are " + strings.Join(slices.Compact(known), ", ")
}

// maxListed bounds the names that an error lists.
const maxListed = 12
