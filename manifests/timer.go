package manifests

import (
	"time"

	"go.yaml.in/yaml/v4"

	"edda/internal/calendar"
)

// completeTimer checks that the keys of a timer fit each other.
func (r *reader) completeTimer(a *Action, n *yaml.Node) {
	after, every, at, zone := get(n, "after"), get(n, "every"), get(n, "at"), get(n, "zone")
	length := after
	if length == nil {
		length = every
	}
	switch {
	case length == nil && at == nil && r.misnamed(n, "the action timer"): // its key is reported
	case after != nil && every != nil || length == nil && at == nil:
		r.errorAt(a.Pos, "a timer has one of after, at and every, such as after: 30m")
	case length == nil:
		r.instant(at, a.At)
		if zone != nil {
			r.errorf(zone, "at is one moment in every zone: zone stands beside after or every; for a time of day write at: =atTime(…)")
		}
	case at != nil:
		r.timeOfDay(at, a.At, length)
	case zone != nil && fixed(length):
		r.errorf(zone, "%s is as long in every zone: zone belongs to days, weeks, months and years, such as 1 day", describe(length))
	}
	if has(n, "catchup") && every == nil {
		r.errorf(get(n, "catchup"), "catchup belongs to a timer with every")
	}
}

// fixed reports whether a node is the literal of a duration, and of no calendar period.
func fixed(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return false
	}
	_, err := ParseDuration(n.Value)
	return err == nil
}

// period reads a duration or a calendar period such as 1 month: a literal or an expression.
func (r *reader) period(n *yaml.Node, what string, zero bool) *Value {
	if n.Kind == yaml.ScalarNode {
		if _, ok, err := calendar.ParsePeriod(n.Value); ok {
			if err != nil {
				r.errorf(n, "%s: %v", what, err)
			}
			return r.value(n)
		}
	}
	return r.span(n, what, zero)
}

// isPeriod reports whether a text has the form of a calendar period.
func isPeriod(text string) bool {
	_, ok, _ := calendar.ParsePeriod(text)
	return ok
}

// instant checks a time: a literal or an expression.
func (r *reader) instant(n *yaml.Node, v *Value) {
	if text, ok := v.Scalar.(string); v.Kind == Literal && !isNull(n) && n.Value != "" {
		if _, err := time.Parse(time.RFC3339, text); !ok || err != nil {
			r.errorf(n, "at is a time such as 2026-01-31T10:00:00Z, or an expression, not %s", describe(n))
		}
	} else if v.Kind == List || v.Kind == Map {
		r.errorf(n, "at is a time or an expression, not %s", describe(n))
	}
}

// timeOfDay checks the at beside an after or every.
func (r *reader) timeOfDay(n *yaml.Node, v *Value, length *yaml.Node) {
	switch {
	case fixed(length):
		r.errorf(n, "a timer has one of after, at and every; at is a time of day beside days, weeks, months and years, such as every: 1 day")
	case v.Kind == List || v.Kind == Map:
		r.errorf(n, "at is a time of day or an expression, not %s", describe(n))
	case v.Kind == Literal && !isNull(n) && n.Value != "":
		if _, err := calendar.ParseClock(n.Value); err != nil {
			r.errorf(n, "at beside after or every: %v", err)
		}
	}
}

// timerZone reads a zone: a literal or an expression.
func (r *reader) timerZone(n *yaml.Node) *Value {
	v := r.filled(n, "zone")
	if v.Kind == Literal && !isNull(n) {
		r.zone(n)
	} else if v.Kind == List || v.Kind == Map {
		r.errorf(n, "zone is a time zone such as Europe/Brussels, or an expression, not %s", describe(n))
	}
	return v
}
