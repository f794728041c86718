package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A replay of a whole cluster has a part in each shard, all with one id. Each part exchanges nothing before it has built
// everything; a part may fail while others exchange. Each shard keeps its newest parts, so one may have forgotten what others
// know: there a repeated call would begin the part again.

// Whole is the report of a replay from its parts by shard; nil where a shard does not know its part. There must be
// one at least. A split of the shards copies the parts: one that had ended counts once, and the halves of one that ran
// count each.
func Whole(parts []*Report) Report {
	var out *Report
	missing := -1
	for shard, part := range parts {
		switch {
		case part == nil:
			if missing < 0 {
				missing = shard
			}
		case part.copied(parts[:shard]):
		case out == nil:
			first := part.copy()
			out = &first
			out.Error = inShard(shard, out.Error)
		default:
			out.add(part, shard)
		}
	}
	if missing < 0 || missing >= out.Shards || out.State != StateDone {
		return *out
	}
	why := fmt.Sprintf("it never began there, and the call must be repeated with the id; or that shard has forgotten it, because it keeps the newest %d", maxKept)
	if out.DryRun {
		why = "it never began there, or ended with the process: begin another dry run"
	}
	out.State, out.Error = StateFailed, fmt.Sprintf("shard %d does not know its part of this replay: %s", missing, why)
	return *out
}

// copied reports whether a part is the copy of one of the others: two parts neither begin nor end at one moment.
func (r *Report) copied(others []*Report) bool {
	return !r.Ended.IsZero() && slices.ContainsFunc(others, func(o *Report) bool {
		return o != nil && o.Begun.Equal(r.Begun) && o.Ended.Equal(r.Ended)
	})
}

// inShard adds to an error in which shard it was.
func inShard(shard int, problem string) string {
	if problem == "" {
		return ""
	}
	return fmt.Sprintf("shard %d: %s", shard, problem)
}

// add adds the part of another shard.
func (r *Report) add(part *Report, shard int) {
	if part.Begun.Before(r.Begun) {
		r.Begun = part.Begun
	}
	switch {
	case r.State == StateRunning:
	case part.State == StateRunning:
		r.State, r.Ended, r.Progress.Phase = StateRunning, time.Time{}, part.Progress.Phase
	case part.Ended.After(r.Ended):
		r.Ended = part.Ended
	}
	if part.State == StateFailed {
		r.Error = cmp.Or(r.Error, inShard(shard, part.Error))
		if r.State == StateDone {
			r.State = StateFailed
		}
	}
	r.Progress.add(part.Progress)
}

// add adds the counts of another part, and what is shown of it as far as there is room.
func (s *Summary) add(o Summary) {
	for _, c := range []struct {
		to   *int
		more int
	}{
		{&s.KeysTotal, o.KeysTotal}, {&s.KeysDone, o.KeysDone}, {&s.EventsTotal, o.EventsTotal}, {&s.EventsDone, o.EventsDone},
		{&s.Same, o.Same}, {&s.Changed, o.Changed}, {&s.Exchanged, o.Exchanged}, {&s.Before, o.Before}, {&s.Extra, o.Extra},
		{&s.Expired, o.Expired}, {&s.Unbuilt, o.Unbuilt}, {&s.NewWork, o.NewWork}, {&s.GoneWork, o.GoneWork}, {&s.AllWork, o.AllWork}, {&s.Sent, o.Sent},
	} {
		*c.to += c.more
	}
	s.Differences = append(s.Differences, o.Differences[:min(len(o.Differences), MaxShown-len(s.Differences))]...)
	s.Work = append(s.Work, o.Work[:min(len(o.Work), MaxShown-len(s.Work))]...)
	for _, n := range o.Notes {
		if !slices.Contains(s.Notes, n) {
			s.Notes = append(s.Notes, n)
		}
	}
}
