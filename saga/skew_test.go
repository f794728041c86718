package saga

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"edda/manifests"
)

// TestSkewOfShards: what one shard emits with the next revision must not come past another that has the one before.
func TestSkewOfShards(t *testing.T) {
	const (
		order    = "saga: order\nversion: 1\nkey: meta.correlation_id\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		paying   = "saga: order\nversion: 2\nkey: meta.correlation_id\non:\n  Placed: {start: true, do: [{event: paid}, {done: true}]}\n"
		later    = "saga: order\nversion: 3\nkey: meta.correlation_id\non:\n  Placed: {start: true, do: [{event: paid}, {event: seen}, {done: true}]}\n"
		child    = "saga: order\nversion: 2\nkey: meta.correlation_id\non:\n  Placed: {start: true, do: [{start: ship, key: meta.correlation_id}]}\n  ship.ok: {do: [{done: true}]}\n"
		chosen   = "saga: order\nversion: 3\nkey: meta.correlation_id\non:\n  Placed: {start: true, do: [{start: ship, key: meta.correlation_id, event: Packed}]}\n  ship.ok: {do: [{done: true}]}\n"
		keyed    = "saga: order\nversion: 2\nkey: event.id\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		ship     = "saga: ship\nversion: 1\nkey: meta.correlation_id\non:\n  Begun: {start: true, do: [{done: true}]}\n"
		hears    = "saga: ship\nversion: 2\nkey: meta.correlation_id\non:\n  Begun: {start: true}\n  order.paid: {do: [{done: true}]}\n"
		either   = "saga: ship\nversion: 2\nkey: meta.correlation_id\non:\n  Begun: {start: true}\n  order.paid & Packed: {do: [{done: true}]}\n"
		begins   = "saga: ship\nversion: 3\nkey: meta.correlation_id\non:\n  Begun: {start: true}\n  order.paid: {start: true, do: [{done: true}]}\n"
		named    = "saga: sale\nversion: 1\nkey: meta.correlation_id\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		byOrder  = "saga: order\nversion: 1\nkey: event.order_id\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		takeover = "saga: order\nversion: 2\nkey: event.order_id\non:\n  Placed: {start: true}\n  Order.Placed: {start: true, key: event.customer_id, do: [{done: true}]}\n"
		preciser = "saga: order\nversion: 2\nkey: event.order_id\non:\n  Order.Placed: {start: true, key: event.customer_id, do: [{done: true}]}\n"
		fullType = "saga: order\nversion: 3\nkey: event.order_id\non:\n  Placed: {start: true}\n  Order.Placed: {start: true, key: event.customer_id}\n  com.shop.Placed: {start: true, do: [{done: true}]}\n"
		besides  = "saga: order\nversion: 3\nkey: event.order_id\non:\n  Placed: {start: true}\n  Order.Placed: {start: true, key: event.customer_id}\n  Order.Paid: {start: true, do: [{done: true}]}\n"
		grouped  = "saga: order\nversion: 2\nkey: event.customer_id\non:\n  Placed & Paid: {start: true, do: [{done: true}]}\n"
		regional = "saga: order\nversion: 1\nkey: config.region + event.id\nconfig: {region: eu, limit: 5}\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		moved    = "saga: order\nversion: 2\nkey: config.region + event.id\nconfig: {region: us, limit: 5}\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		limited  = "saga: order\nversion: 2\nkey: config.region + event.id\nconfig: {region: eu, limit: 7}\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		raised   = "saga: order\nversion: 1\nkey: event.order_id\nevents: {Placed: {upcast: {1: {set: {order_id: \"${event.order}\"}}}}}\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		reraised = "saga: order\nversion: 2\nkey: event.order_id\nevents: {Placed: {upcast: {1: {set: {order_id: \"${event.number}\"}}}}}\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		sinking  = "saga: order\nversion: 2\nkey: event.order_id\n\nevents: {Placed: {upcast: {1: {set: {order_id: \"${event.order}\"}}}}}\non:\n  Placed: {start: true, do: [{event: paid}, {done: true}]}\n"
		priced   = "saga: order\nversion: 2\nkey: event.order_id\nevents: {Placed: {upcast: {1: {set: {price: 1}}}}}\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		bounded  = "saga: order\nversion: 2\nkey: event.order_id\nconfig: {limit: 7, prefix: a}\nevents: {Placed: {upcast: {1: {set: {order_id: \"${config.prefix}${event.order}\"}}, 2: {set: {price: 1, tags: =config.limit}, unset: [sum]}}}}\non:\n  Placed: {start: true, do: [{done: true}]}\n"
		nightly  = "saga: order\nversion: 1\nschedule: {night: {every: 1h, with: {shop: a, depth: 1}}}\non:\n  schedule.night: {start: true, key: event.shop, do: [{done: true}]}\n"
		shopB    = "saga: order\nversion: 2\nschedule: {night: {every: 1h, with: {shop: b, depth: 1}}}\non:\n  schedule.night: {start: true, key: event.shop, do: [{done: true}]}\n"
		deeper   = "saga: order\nversion: 2\nschedule: {night: {every: 1h, with: {shop: a, depth: 2}}}\non:\n  schedule.night: {start: true, key: event.shop, do: [{done: true}]}\n"
		idle     = "saga: order\nversion: 2\nkey: meta.correlation_id\non:\n  Begun: {start: true, do: [{done: true}]}\n"
		packed   = "saga: ship\nversion: 3\nkey: meta.correlation_id\non:\n  Begun: {start: true, do: [{done: true}]}\n  Packed: {start: true, do: [{done: true}]}\n"
	)
	of := func(texts ...string) []string { return texts }
	upcast := func(config, upcasts string) string {
		return "saga: order\nkey: event.order_id\nconfig: " + config + "\nevents: {Placed: {upcast: " + upcasts + "}}\non:\n  Placed: {start: true, do: [{done: true}]}\n"
	}
	computed := func(limit string) string {
		return upcast("{limit: "+limit+"}", `{1: {set: {order_id: "=config[event.name]"}}}`)
	}
	feeding := func(from string) string {
		return upcast("{}", "{1: {set: {order: =event."+from+"}}, 2: {set: {order_id: =event.order}}}")
	}
	gap := func(first string) string {
		return upcast("{}", "{1: {set: {price: 1}}, "+first+": {set: {price: 2}}, 4: {set: {order_id: =event.order}}}")
	}
	for name, tt := range map[string]struct {
		before, next []string
		says         []string // one for each problem
	}{
		"nothing new":                      {of(paying, hears), of(paying, hears), nil},
		"both in one revision":             {of(order, ship), of(paying, hears), []string{"saga order emits order.paid from this revision on, and saga ship takes it only then"}},
		"a part of a group":                {of(order, ship), of(paying, either), []string{"saga ship takes it only then"}},
		"both sagas are new":               {of(ship), of(paying, hears), []string{"Deploy ship first, and then order"}},
		"the listener first":               {of(order, hears), of(paying, hears), nil},
		"the listener afterwards":          {of(paying, ship), of(paying, hears), nil},
		"nobody listens":                   {of(order, ship), of(paying, ship), nil},
		"emitted by the version before":    {of(paying, ship), of(later, hears), nil},
		"a child with its parent":          {of(order), of(child, ship), []string{"Deploy ship first, and then order"}},
		"a child that is there":            {of(order, ship), of(child, ship), nil},
		"a child that nobody has":          {of(order), of(child), nil},
		"a child's new start":              {of(child, ship), of(chosen, packed), []string{"saga order starts saga ship, and the revision before has no handler for that start"}},
		"a child's start is there":         {of(child, packed), of(chosen, packed), nil},
		"another key":                      {of(order), of(keyed), []string{"saga order has another key than in the revision before, for event Placed: an event of this moment may reach two instances, or none"}},
		"the key of a saga without one":    {of(order), of(strings.Replace(keyed, "key: event.id\n", "", 1)), nil},
		"another key than that":            {of(strings.Replace(order, "key: meta.correlation_id\n", "", 1)), of(keyed), []string{"for event Placed"}},
		"a start of the listener":          {of(order, hears), of(paying, begins), []string{"saga ship takes it only then"}},
		"another name":                     {of(order), of(named), []string{"saga sale takes the place of saga order"}},
		"another handler takes it over":    {of(byOrder), of(takeover), []string{"another key than in the revision before, for event Order.Placed"}},
		"the one before takes it again":    {of(takeover), of(byOrder), []string{"for event Order.Placed"}},
		"an event with dots in its name":   {of(strings.Replace(byOrder, "Placed", "placed.v2", 1)), of(strings.Replace(takeover, "Placed", "placed.v2", 2)), []string{"for event Order.placed.v2"}},
		"a more precise name instead":      {of(byOrder), of(preciser), []string{"for event Order.Placed"}},
		"a full type takes it over":        {of(takeover), of(fullType), []string{"for event com.shop.Placed"}},
		"an event of its own":              {of(takeover), of(besides), nil},
		"a group instead":                  {of(byOrder), of(grouped), []string{"for event Placed"}},
		"what the key reads of config":     {of(regional), of(moved), []string{"for event Placed"}},
		"other config":                     {of(regional), of(limited), nil},
		"an upcast that the key sees":      {of(raised), of(reraised), []string{"for event Placed"}},
		"an upcast that gives the key":     {of(byOrder), of(reraised), []string{"for event Placed"}},
		"an upcast that stays":             {of(raised), of(sinking), nil},
		"an upcast beside the key":         {of(byOrder), of(priced), nil},
		"config beside an upcast":          {of(strings.Replace(bounded, "7", "5", 1)), of(bounded), nil},
		"config that an upcast reads":      {of(strings.Replace(bounded, "prefix: a", "prefix: b", 1)), of(bounded), []string{"for event Placed"}},
		"config that it reads somewhere":   {of(computed("5")), of(computed("7")), []string{"for event Placed"}},
		"a further upcast beside the key":  {of(strings.Replace(raised, "}}}}}", "}}, 2: {set: {price: 1}}}}}", 1)), of(raised), nil},
		"an upcast that one before feeds":  {of(feeding("a")), of(feeding("b")), []string{"for event Placed"}},
		"an upcast that closes a gap":      {of(gap("3")), of(gap("2")), []string{"for event Placed"}},
		"an upcast that unsets the key":    {of(raised), of(strings.Replace(raised, "}}}}}", "}}, 2: {unset: [order_id]}}}}", 1)), []string{"for event Placed"}},
		"what the key reads of a schedule": {of(nightly), of(shopB), []string{"for event schedule.night"}},
		"other values of a schedule":       {of(nightly), of(deeper), nil},
		"another name and trigger":         {of(order), of(strings.Replace(named, "Placed", "Order.Placed", 1)), []string{"saga sale takes the place of saga order"}},
		"a start moves to another saga":    {of(order), of(idle, named), []string{"saga sale takes the place of saga order"}},
		"another name and schedule":        {of(nightly), of(strings.Replace(nightly, "order", "sale", 1)), []string{"saga sale takes the place of saga order"}},
		"a full type and another name":     {of(strings.Replace(order, "Placed", "Order.Placed", 1)), of(strings.Replace(named, "Placed", "com.shop.Placed.v2", 1)), []string{"saga sale takes the place of saga order"}},
		"beside the one before":            {of(order), of(order, named), nil},
		"gone":                             {of(order, ship), of(ship), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := setOf(t, tt.next...).Skew(setOf(t, tt.before...))
			if !slices.EqualFunc(got, tt.says, func(p manifests.Problem, says string) bool {
				return strings.Contains(p.Message, says) && !p.Warning && p.File != nil && p.Pos.Line > 0
			}) {
				t.Errorf("%q\nwant %q", got, tt.says)
			}
		})
	}
}

// TestSkewOfManySagas: before, each saga was compared with each other one, so a large revision took longer than a call may.
func TestSkewOfManySagas(t *testing.T) {
	allocations := func(sagas int) float64 {
		revision := func(version int, first string) *Set {
			var texts []string
			for i := range sagas {
				texts = append(texts, fmt.Sprintf("saga: s%d\nversion: %d\nkey: event.id\non:\n  S%d.Created: {start: true, do: [{event: e}]}\n  s%d.%s: {do: [{event: f%d}, {done: true}]}\n", i, version, i, (i+1)%sagas, first, version))
			}
			return setOf(t, texts...)
		}
		before, next := revision(1, "f1"), revision(2, "f2")
		return testing.AllocsPerRun(1, func() { next.Skew(before) })
	}
	if few, many := allocations(40), allocations(80); many > 2.5*few {
		t.Errorf("%.0f allocations for 40 sagas, and %.0f for 80", few, many)
	}
}
