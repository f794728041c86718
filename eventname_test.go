package edda

import "testing"

func TestNamedEvent(t *testing.T) {
	for name, want := range map[string]Event{
		"OrderPlaced":                    {Type: "OrderPlaced"},
		"Order.OrderPlaced":              {AggregateType: "Order", Type: "OrderPlaced"},
		"com.github.pull_request.opened": {AggregateType: "pull_request", Type: "opened", FullType: "com.github.pull_request.opened"},
		"com.shop.order.placed.v2":       {AggregateType: "order", Type: "placed", Version: 2, FullType: "com.shop.order.placed.v2"},
		"order.placed.v2":                {AggregateType: "order", Type: "placed", Version: 2, FullType: "order.placed.v2"},
		"com.shop.order.v0":              {AggregateType: "order", Type: "v0", FullType: "com.shop.order.v0"},
		"com.shop.order.verified":        {AggregateType: "order", Type: "verified", FullType: "com.shop.order.verified"},
	} {
		got := NamedEvent(name)
		if got.Kind != KindEvent || got.AggregateType != want.AggregateType || got.Type != want.Type || got.Version != want.Version || got.FullType != want.FullType {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestShortType(t *testing.T) {
	for full, want := range map[string]struct {
		event    string
		version  int
		stripped string
	}{
		"T": {"T", 0, "T"}, "a.T": {"T", 0, "a.T"}, "a.T.v2": {"T", 2, "a.T"}, "T.v2": {"T", 2, "T"}, "v2": {"v2", 0, "v2"},
		"a.T.v-1": {"v-1", 0, "a.T.v-1"}, "a.T.v99999999999999999999": {"v99999999999999999999", 0, "a.T.v99999999999999999999"}, "": {"", 0, ""},
	} {
		event, version := ShortType(full)
		if event != want.event || version != want.version || TypeWithoutVersion(full) != want.stripped {
			t.Errorf("%q: %q %d %q", full, event, version, TypeWithoutVersion(full))
		}
	}
}
