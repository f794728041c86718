package replay

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"edda"
)

func TestCompareListsEachPath(t *testing.T) {
	k := edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}
	was := edda.Cell{Key: k, Instance: &edda.Instance{Key: k, Version: 1, State: json.RawMessage(`{"n":12345678901234567,"gone":[1,2],"same":{"a":null}}`), Steps: []edda.Step{{ID: "a"}, {ID: "b"}}}}
	is := edda.Cell{Key: k, Instance: &edda.Instance{Key: k, Version: 1, State: json.RawMessage(`{"n":12345678901234568,"new":"<&>","same":{"a":null}}`), Steps: []edda.Step{{ID: "a"}}},
		Held: []edda.Entry{{N: 1, Event: edda.Event{ID: "e1"}}}}
	found, err := Compare(was, is, 100)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range found {
		lines = append(lines, fmt.Sprintf("%s %.20s -> %.20s", d.Path, d.Was, d.Is))
	}
	want := []string{
		"held_events  -> [{\"event\":{\"id\":\"e1\"", "state.gone [1,2] -> ", "state.n 12345678901234567 -> 12345678901234568", "state.new  -> \"<&>\"", "steps[1] {\"action\":\"\",\"attemp -> ",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if found, _ := Compare(was, is, 2); len(found) != 2 {
		t.Errorf("%d differences, more than wanted", len(found))
	}
	if found, err := Compare(was, was, 100); len(found) != 0 || err != nil {
		t.Errorf("a cell differs from itself: %v, %v", found, err)
	}
}

func TestLongValuesAreCut(t *testing.T) {
	k := edda.Key{Saga: "order", Correlation: "O1"}
	long := edda.Cell{Key: k, Instance: &edda.Instance{Key: k, State: json.RawMessage(`{"text":"` + strings.Repeat("ä", 9000) + `"}`)}}
	found, err := Compare(long, edda.Cell{Key: k, Instance: &edda.Instance{Key: k, State: json.RawMessage(`{}`)}}, 100)
	if err != nil || len(found) != 1 || len(found[0].Was) > 2*maxShownValue || !json.Valid(found[0].Was) {
		t.Errorf("%v, %d bytes, %v", err, len(found[0].Was), found)
	}
}

func TestSameComparesTheStoredBytes(t *testing.T) {
	k := edda.Key{Saga: "order", Correlation: "O1"}
	a := edda.Cell{Key: k, Parked: []edda.Entry{}}
	if same, err := Same(a, edda.Cell{Key: k}); !same || err != nil {
		t.Errorf("nothing parked and an empty list: %t, %v", same, err)
	}
	a.Instance = &edda.Instance{Key: k, State: json.RawMessage(`{"a": 1}`)}
	b := edda.Cell{Key: k, Instance: &edda.Instance{Key: k, State: json.RawMessage(`{"a":1}`)}}
	if same, err := Same(a, b); !same || err != nil {
		t.Errorf("stored as the same bytes: %t, %v", same, err)
	}
	b.Instance.Revision++
	if same, _ := Same(a, b); same {
		t.Error("another revision is another cell")
	}
}
