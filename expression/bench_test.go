package expression

import "testing"

func BenchmarkEval(b *testing.B) {
	items := make([]any, 10)
	for i := range items {
		items[i] = map[string]any{"sku": "A", "qty": i, "price": 1000 + i}
	}
	env := Env{Vars: map[string]any{
		"event": map[string]any{"items": items, "amount": 1700},
		"state": map[string]any{"total": 2500},
	}}
	for name, source := range map[string]string{
		"condition": `event.amount < state.total`,
		"sum10":     `sum(event.items, .qty * .price)`,
		"member":    `event.amount`,
		"map10":     `map(event.items, {{"sku": .sku, "qty": .qty}})`,
	} {
		p, errs := Compile(source, Options{Names: []string{"event", "state"}})
		if errs != nil {
			b.Fatal(errs[0])
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Eval(env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := Compile(`sum(event.items, .qty * .price)`, Options{Names: []string{"event"}}); errs != nil {
			b.Fatal(errs[0])
		}
	}
}
