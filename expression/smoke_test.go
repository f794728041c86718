package expression

import "testing"

func TestSmoke(t *testing.T) {
	names := []string{"event", "state", "key", "now", "total", "count", "first", "step"}
	vars := map[string]any{
		"event": map[string]any{"amount": 10, "items": []any{map[string]any{"qty": 2, "price": 5}, map[string]any{"qty": 1, "price": 15}}, "m": map[string]any{"b": 1, "a": 2}},
		"state": map[string]any{"total": 25}, "key": "O1", "now": "2026-01-01T00:00:00.000Z", "count": 4, "total": 3,
	}
	for _, src := range []string{
		"sum(event.items, .qty * .price)", "event.amount < state.total", "count > 3 and count(event.items, .qty > 1) == 1", "step.ship.result.id",
		"map(event.items, {{\"a\": .qty}})", "keys(event.m)", "now()", "evnt.x", "10 / 2", "7/2", "1 + nil", "sortBy(event.items, .price, 'desc')",
		"groupBy(event.items, .qty)", "event.items | filter(.qty > 1) | len()", "addTime(now, '1d12h')", "now + duration('36h') > now", "let x = 3; x * x",
		"map(event.items, {let o = #; sum(event.items, .qty + o.qty)})", "reduce(1..5, #acc + #)", "if count > 3 {1} else {2}", "1 < count < 5",
		"event.items[5].x", "event.items[-1].qty", "\"a\" + 1", "9223372036854775807 + 1", "first(event.items).qty", "not (key in ['O1'])", "key matches '^O[0-9]+$'", "key not in []",
		"map(event.items, {\"a\": .qty})", "a = b", "type(duration('1h'))", "event?.foo?.bar ?? 7", "key[0:1]", "sum(1..3)", "{a: 1, (key): 2}", "map(event.m, #)", "any(event.items, .nothing)",
	} {
		p, errs := Compile(src, Options{Names: names})
		if errs != nil {
			for _, e := range errs {
				t.Logf("%-45s COMPILE %d:%d %s %v", src, e.Line, e.Column, e.Message, e.Err)
			}
			continue
		}
		v, err := p.Eval(Env{Vars: vars})
		if err != nil {
			e := err.(*Error)
			t.Logf("%-45s RUN %d:%d %s", src, e.Line, e.Column, e.Message)
			continue
		}
		t.Logf("%-45s = %s   %v %v", src, Text(v), p.Names(), p.Refs())
	}
}
