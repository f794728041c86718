package costbudget

import (
	"testing"
	"time"

	"edda"
	"edda/expression"
	"edda/store"
	"edda/stream/wire"
)

// stage is one step of the straight line, by itself.
type stage struct {
	name string
	n    int // operations that the check counts: as many as make the counts steady
	// open prepares n operations. What it returns does them, and is what is measured.
	open func(tb testing.TB, n int) (do func(), b *books)
}

// stages are in the order in which an event meets them.
func stages() []stage {
	return []stage{
		{"decode an order", 1000, decodeOrder},
		{"decode a result", 1000, decodeResult},
		{"route an order", 1000, routeOrder},
		{"a condition", 1000, evaluate(`event.total < state.total`)},
		{"a sum of ten", 1000, evaluate(`sum(event.items, .quantity * .price)`)},
		{"a map of ten", 1000, evaluate(`map(event.items, {{"sku": .sku, "quantity": .quantity}})`)},
		{"apply an order", 1000, apply(0)},
		{"apply a result", 1000, apply(1)},
		{"apply the last result", 1000, apply(3)},
		{"encode a cell", 1000, encodeCell},
		{"load a cell", 1000, loadCell},
		{"commit one transition", 100, commits(1)},
		{"commit 128 transitions", 16, commits(batch)},
		{"an order through the engine", 1024, throughEngine},
		{"relay a command", 1024, relay},
		{"encode a command", 1000, encodeWork},
		{"encode an aggregate's command", 1000, encodeAggregateCommand},
		{"an effect, claimed and settled", 100, settle},
		{"an effect, handed over", 300, handOver},
		{"a call over HTTP", 300, call},
		{"encode a result", 1000, encodeResult},
	}
}

func BenchmarkStages(b *testing.B) {
	for _, s := range stages() {
		b.Run(s.name, func(b *testing.B) {
			do, books := s.open(b, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			do()
			b.StopTimer()
			for unit, n := range books.per(b.N) {
				b.ReportMetric(n, unit)
			}
		})
	}
}

// repeat is a stage whose every operation is the same.
func repeat(n int, one func()) (func(), *books) {
	one() // what is made once is not what is measured
	return func() {
		for range n {
			one()
		}
	}, nil
}

func decodeOrder(tb testing.TB, n int) (func(), *books) { return decode(tb, n, placed(orderID(0))) }

func decodeResult(tb testing.TB, n int) (func(), *books) {
	return decode(tb, n, resultMessage(tb, tell(tb, program(tb), orderID(0)).made[0].Work[0]))
}

func decode(tb testing.TB, n int, m wire.Message) (func(), *books) {
	return repeat(n, func() {
		if ev := (wire.Codec{}).Event(m); ev.Malformed != "" {
			tb.Fatal(ev.Error)
		}
	})
}

func routeOrder(tb testing.TB, n int) (func(), *books) {
	set, ev := program(tb), wire.Codec{}.Event(placed(orderID(0)))
	return repeat(n, func() { target(tb, set, ev) })
}

func evaluate(source string) func(testing.TB, int) (func(), *books) {
	return func(tb testing.TB, n int) (func(), *books) {
		items := make([]any, 10)
		for i := range items {
			items[i] = map[string]any{"sku": "A-1", "quantity": i, "price": 1000 + i}
		}
		env := expression.Env{Vars: map[string]any{
			"event": map[string]any{"items": items, "total": 1700},
			"state": map[string]any{"total": 2500},
		}}
		p, errs := expression.Compile(source, expression.Options{Names: []string{"event", "state"}})
		if errs != nil {
			tb.Fatal(errs[0])
		}
		return repeat(n, func() {
			if _, err := p.Eval(env); err != nil {
				tb.Fatal(err)
			}
		})
	}
}

// apply gives an order's cell its event again and again.
func apply(event int) func(testing.TB, int) (func(), *books) {
	return func(tb testing.TB, n int) (func(), *books) {
		set := program(tb)
		s := tell(tb, set, orderID(0))
		cell, ev := s.cells[event], s.events[event]
		to := target(tb, set, ev)
		return repeat(n, func() {
			if _, made := set.Apply(cell, to, ev); len(made) != 1 || made[0].Fate != edda.FateHandled {
				tb.Fatalf("%+v", made)
			}
		})
	}
}

func encodeCell(tb testing.TB, n int) (func(), *books) {
	cell := tell(tb, program(tb), orderID(0)).cells[3]
	return repeat(n, func() {
		if _, err := store.CellBytes(cell); err != nil {
			tb.Fatal(err)
		}
	})
}

func encodeWork(tb testing.TB, n int) (func(), *books) {
	w := tell(tb, program(tb), orderID(0)).made[0].Work[0]
	return repeat(n, func() {
		if _, err := (wire.Codec{}).Work(w); err != nil {
			tb.Fatal(err)
		}
	})
}

func encodeAggregateCommand(tb testing.TB, n int) (func(), *books) {
	w := tell(tb, program(tb), orderID(0)).made[0].Work[0]
	w.Kind, w.Name, w.To = edda.WorkCommand, "Stock.Reserve", w.From.Correlation
	return repeat(n, func() {
		if _, err := (wire.Codec{}).Work(w); err != nil {
			tb.Fatal(err)
		}
	})
}

func encodeResult(tb testing.TB, n int) (func(), *books) {
	r := resultOf(tell(tb, program(tb), orderID(0)).made[0].Work[0])
	return repeat(n, func() {
		if _, err := (wire.Codec{}).Result(r); err != nil {
			tb.Fatal(err)
		}
	})
}

// soon bounds what a stage with loops of its own may take.
const soon = time.Minute
