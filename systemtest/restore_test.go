package systemtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"edda"
	"edda/store"
)

// delivery is a saga whose timer sends the first of three effects.
const delivery = `
saga: delivery
version: 1
key: event.order_id
on:
  OrderPlaced:
    start: true
    do:
      - {timer: pack, after: 150ms}
  timer.pack:
    do:
      - seq:
          - {effect: reserve, with: {order: =key}}
          - {effect: charge, with: {order: =key}}
          - {effect: ship, with: {order: =key}}
          - done: =step.ship.result
---
effect: reserve
http: {method: POST, url: "http://shop.example/reserve", body: =payload}
---
effect: charge
http: {method: POST, url: "http://shop.example/charge", body: =payload}
---
effect: ship
http: {method: POST, url: "http://shop.example/ship", body: =payload}
result: =body
`

// TestARestoredStoreLivesItsPastAgain takes a backup in the middle, goes on, and
// restores it: the streams have what happened since, with the results of effects that
// timers began which the store has still to fire. Nothing waits, nothing gets another
// name, and every instance comes out as it did.
func TestARestoredStoreLivesItsPastAgain(t *testing.T) {
	const orders = 60
	bothWays(t, []string{delivery}, func(w *world) {
		w.stop()
		w.slow = 3 * time.Millisecond
		w.start()
		place := func(from, to int) {
			for n := from; n < to; n++ {
				w.send(fmt.Sprint("e", n), "OrderPlaced", fmt.Sprint("O", n), fmt.Sprintf(`{"order_id":"O%d"}`, n))
				time.Sleep(25 * time.Millisecond)
			}
		}
		place(0, orders/2)
		backup := w.backUp()
		place(orders/2, orders)
		w.livesAgain(backup, "delivery", orders)
	})
}

// livesAgain waits until so many orders are done, and restores the backup: they come
// out as they did, and nothing is called again.
func (w *world) livesAgain(backup, saga string, orders int) {
	w.t.Helper()
	first := w.done(saga, orders)
	w.stop()
	w.restore(backup)
	w.pass(time.Now().Add(time.Hour))
	w.start()
	if again := w.done(saga, orders); !bytes.Equal(first, again) {
		before, after := bytes.Split(first, []byte("\n")), bytes.Split(again, []byte("\n"))
		n := slices.IndexFunc(before, func(line []byte) bool {
			return !slices.ContainsFunc(after, func(l []byte) bool { return bytes.Equal(l, line) })
		})
		w.t.Errorf("an instance came out as\n%s\nand after the restore as\n%s", before[n], after[n])
	}
	called := map[string]string{}
	for _, c := range w.shop.all() {
		name := c.Effect + " " + c.Order
		if was, twice := called[name]; twice {
			w.t.Errorf("%s was called twice, under %s and %s", name, was, c.Key)
		}
		called[name] = c.Key
	}
}

// reserved is a saga that is told something while a result waits to be told to others.
const reserved = `
saga: reserved
version: 1
key: event.order_id
state: {notes: 0}
on:
  OrderPlaced: {start: true, do: [{effect: reserve, with: {order: =key}, due: 30m}]}
  OrderNoted: {set: {notes: =state.notes + 1}}
  reserve.ok: {do: [{effect: charge, with: {order: =key, notes: =state.notes}}]}
  charge.ok: {do: [{done: =state.notes}]}
---
effect: reserve
http: {method: POST, url: "http://shop.example/reserve", body: =payload}
---
effect: charge
http: {method: POST, url: "http://shop.example/charge", body: =payload}
`

// TestAResultWhoseCopyIsHoursLateIsLivedAgainAsItWas: nothing that the result sets off
// is done before its copy is in the stream, and a restored store takes the result before
// what was stored meanwhile, and before what became due.
func TestAResultWhoseCopyIsHoursLateIsLivedAgainAsItWas(t *testing.T) {
	const orders = 20
	inBubble(t, []string{reserved}, func(w *world) {
		backup := w.backUp()
		w.pass(time.Now().Add(time.Second)) // it has begun
		tell := func(name string) {
			for n := range orders {
				w.send(fmt.Sprint(name, time.Now().UnixNano(), n), name, fmt.Sprint("O", n), fmt.Sprintf(`{"order_id":"O%d"}`, n))
			}
			w.pass(time.Now().Add(20 * time.Minute))
		}
		w.deaf.Store(true)
		tell("OrderPlaced")
		tell("OrderNoted") // before reserve is due, and behind that
		tell("OrderNoted")
		if calls := w.shop.all(); len(calls) != orders {
			t.Errorf("%d calls while nobody knew why", len(calls))
		}
		w.deaf.Store(false)
		w.pass(time.Now().Add(time.Minute))
		w.livesAgain(backup, "reserved", orders)
	})
}

// backUp copies the store while everything works.
func (w *world) backUp() string {
	w.t.Helper()
	file, err := os.Create(filepath.Join(w.dir, "backup"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	snapshot, err := w.running.db.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	defer snapshot.Close()
	if err := snapshot.WriteTo(context.Background(), file); err != nil {
		w.t.Fatal(err)
	}
	return file.Name()
}

// restore puts the backup in the store's place.
func (w *world) restore(backup string) {
	w.t.Helper()
	if _, err := store.Restore(context.Background(), backup, filepath.Join(w.dir, "store"), true, nil, func(int) {}); err != nil {
		w.t.Fatal(err)
	}
}

// inputs are the rows of a key's history, wherever in the store they are, but for what
// came twice.
func (w *world) inputs(k edda.Key) (rows []store.Record) {
	w.t.Helper()
	all, err := w.running.db.History(k, 100)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range all {
		if r.Commit, r.N = 0, 0; r.Fate != edda.FateDuplicate {
			rows = append(rows, r)
		}
	}
	return rows
}

// done waits until so many orders are done, and gives what is stored of them.
func (w *world) done(saga string, orders int) []byte {
	w.t.Helper()
	var out bytes.Buffer
	for n := range orders {
		key := fmt.Sprint("O", n)
		w.ends(saga, key, edda.StatusDone)
		in := w.instance(saga, key)
		out.Write(encoded(in))
		out.Write(encoded(w.inputs(in.Key)))
		out.WriteByte('\n')
	}
	w.idle()
	return out.Bytes()
}
