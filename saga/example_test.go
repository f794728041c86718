package saga_test

import (
	"fmt"
	"time"

	"edda"
	"edda/manifests"
	"edda/saga"
)

const trip = `
saga: trip
key: event.trip_id
on:
  TripRequested:
    start: true
    do:
      - seq:
          - {effect: book_flight, undo: cancel_flight}
          - {effect: book_hotel}
          - done:
tests:
  - name: no hotel, the flight is given back
    steps:
      - {event: TripRequested, id: e1, data: {trip_id: T1}, expect: [{effect: book_flight}]}
      - {ok: book_flight, expect: [{effect: book_hotel}]}
      - {failed: book_hotel, expect: [{effect: cancel_flight, undoes: book_flight}]}
      - {ok: book_flight.undo, expect: [{end: undone, reason: book_hotel.failed}]}
`

// A saga is a pure function: the same cell and event give the same transition,
// ids included.
func ExampleSet_Apply() {
	file, _ := manifests.Parse("trip.yaml", []byte(trip))
	program, _ := saga.Compile(file.Sagas[0], saga.Options{})
	set, _ := saga.NewSet(program)

	requested := edda.Event{
		Kind: edda.KindEvent, ID: "e1", Tenant: "acme", Type: "TripRequested",
		Time: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), Payload: []byte(`{"trip_id":"T1"}`),
	}
	for _, target := range set.Route(requested) {
		cell, transitions := set.Apply(edda.Cell{Key: target.Key}, target, requested)
		for _, work := range transitions[0].Work {
			fmt.Println(transitions[0].Fate, work.Kind, work.Name, work.ID)
		}
		fmt.Println(saga.Why(cell))
	}
	// Output:
	// handled effect book_flight 019b796d-d600-78e5-ae54-eb864b197c0b
	// [step book_flight until 2026-01-02T12:00:00.000Z]
}

// RunTests runs a manifest's own tests in virtual time.
func ExampleRunTests() {
	file, _ := manifests.Parse("trip.yaml", []byte(trip))
	results, _ := saga.RunTests(file.Sagas[0], saga.Options{})
	for _, r := range results {
		fmt.Println(r.Saga, r.Name, r.Passed)
	}
	// Output:
	// trip no hotel, the flight is given back true
}
