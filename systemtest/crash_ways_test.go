//go:build !race

package systemtest

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"edda"
)

// The two ways of effect commands and their results: through their streams, and
// within the process. Each has points that the other does not pass, as long as every
// effect of the tortured saga may be called again.
var (
	apartPoints  = []string{"effectBeforeClaim", "effectClaimed", "effectRecorded", "effectPublished"}
	withinPoints = []string{"effectHanded", "effectAnswered", "engineHanded", "copyRead"}
)

// forcedWay has every life of a torture go one way, true or false; else they go the
// one that their point needs, or either: what one began the other must end.
const forcedWay = "EDDA_CRASH_HANDOFF"

// wayOf is the way in which a point is passed.
func wayOf(rnd *rand.Rand, point string) (apart bool) {
	either := rnd.IntN(2) == 0
	switch {
	case slices.Contains(apartPoints, point):
		return true
	case slices.Contains(withinPoints, point):
		return false
	}
	return either
}

// way is the environment of a life.
func way(apart bool) string {
	forced := os.Getenv(forcedWay)
	if forced == "" {
		forced = "true"
		if apart {
			forced = "false"
		}
	}
	return "EDDA_EFFECTS_HANDOFF=" + forced
}

// unreached tells whether a point cannot be passed, because all go the other way.
func unreached(point string) bool {
	switch os.Getenv(forcedWay) {
	case "true":
		return slices.Contains(apartPoints, point)
	case "false":
		return slices.Contains(withinPoints, point)
	}
	return false
}

// effectCommands are the commands of effects that were emitted. Those that did not
// leave the process are in no stream: history tells of all.
func (b *books) effectCommands() map[string]bool {
	out := map[string]bool{}
	for _, records := range b.records {
		for _, r := range records {
			for _, o := range r.Outputs {
				if o.Word == "effect" && o.ID != "" && slices.Contains(r.Work, o.ID) {
					out[o.ID] = true
				}
			}
		}
	}
	return out
}

// evident tells whether a piece of work went where it was to go: it was published,
// or, where it is an effect's command, somebody was called for it or never will be, its
// claim is completed, and its result is in the stream.
func (b *books) evident(id string, effects map[string]bool) bool {
	if len(b.published[id]) > 0 {
		return true
	}
	return effects[id] && (b.claims[id].Done || b.relived) && (len(b.shop.began[id]) > 0 || b.uncalled(id)) && len(b.published[id+".result"]) > 0
}

// uncalled tells whether a command ended without a call, for all that is known: it may be
// called once, and the process was killed between its claim and its call. Its result says
// so, which the stream has also where a store was put back and knows nothing of the claim.
func (b *books) uncalled(id string) bool {
	for _, p := range b.published[id+".result"] {
		var r struct {
			Effect  string       `json:"effect_name"`
			Outcome edda.Outcome `json:"result_type"`
			Payload struct {
				Code string `json:"code"`
			} `json:"payload"`
		}
		if json.Unmarshal(p.body, &r) != nil || r.Effect != atMostOnce || r.Outcome != edda.TimedOut || r.Payload.Code != "unknown" {
			return false
		}
	}
	return len(b.published[id+".result"]) > 0
}

// judgeCopies: every result of a command was published, whichever way it took.
func (b *books) judgeCopies(t testing.TB) {
	t.Helper()
	for id := range b.effectCommands() {
		if len(b.published[id+".result"]) == 0 {
			b.wrong(t, "results", "the result of %s was never published", id)
		}
	}
	for k, records := range b.records {
		for _, r := range records {
			if ev := r.Event; ev.Kind == edda.KindResult && ev.Stream == "" && len(b.published[ev.ID]) == 0 {
				b.wrong(t, "results", "%s took %s, of which there is no copy", k, ev.ID)
			}
		}
	}
}
