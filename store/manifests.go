package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"edda"
	"edda/internal/jsonvalue"
	"edda/store/format"
)

// A manifest's text is kept while it is loaded, the newest of its saga, the version of an instance
// or of a running replay, or the version of an instance whose history is kept. The last is known
// without reading the history: a text without instances is marked with the time (Idle), and
// expires once the history of that day is removed.

// OldText names a text. Idle is that of the row when the sweep read it; From is the new one.
type OldText struct {
	Saga    string
	Version int
	Hash    string
	Idle    time.Time
	From    time.Time
}

func oldText(m edda.Manifest) OldText {
	return OldText{Saga: m.Saga, Version: m.Version, Hash: m.Hash, Idle: m.Idle}
}

func (t OldText) key() []byte {
	return format.ManifestKey(edda.Manifest{Saga: t.Saga, Version: t.Version, Hash: t.Hash})
}

// maxGoneTexts bounds the texts that one change marks or removes.
const maxGoneTexts = 16

// sagaVersion is one version of a saga, whatever its texts.
type sagaVersion struct {
	saga    string
	version int
}

// textNeeds says which texts are needed.
type textNeeds struct {
	newest map[string]edda.Manifest      // by saga
	first  map[sagaVersion]edda.Manifest // the text that gives a version its plain name
	texts  map[sagaVersion]int
	used   map[sagaVersion]bool // by instances and replays
}

// manifests reads all texts, which are few.
func (l *scan) manifests() error {
	rows, sizes, err := l.texts()
	if err != nil {
		return err
	}
	needs, err := l.textNeeds(rows)
	if err != nil {
		return err
	}
	gone := l.historyDropped()
	for i, m := range rows {
		key := format.ManifestKey(m)
		if string(key) < string(l.after) {
			continue
		}
		if err := l.text(m, sizes[i], needs, gone); err != nil {
			return err
		}
		l.after = append(append(l.after[:0:0], key...), 0)
	}
	return nil
}

func (l *scan) texts() (rows []edda.Manifest, sizes []int, err error) {
	err = l.tx.Bucket([]byte(format.Manifest)).ForEach(func(k, v []byte) error {
		m, err := format.Decode[edda.Manifest]("manifest", v)
		m.Text = ""
		rows, sizes = append(rows, m), append(sizes, len(k)+len(v))
		return err
	})
	return rows, sizes, err
}

func (l *scan) textNeeds(rows []edda.Manifest) (textNeeds, error) {
	n := textNeeds{newest: map[string]edda.Manifest{}, first: map[sagaVersion]edda.Manifest{}, texts: map[sagaVersion]int{}, used: map[sagaVersion]bool{}}
	for _, m := range rows {
		at := sagaVersion{m.Saga, m.Version}
		if was, ok := n.newest[m.Saga]; !ok || m.Version > was.Version || m.Version == was.Version && m.Loaded.After(was.Loaded) {
			n.newest[m.Saga] = m
		}
		if was, ok := n.first[at]; !ok || m.Loaded.Before(was.Loaded) {
			n.first[at] = m
		}
		n.texts[at]++
	}
	counts, err := loadCounts(l.tx)
	for key := range counts {
		n.used[sagaVersion{key.Saga, key.Version}] = true
	}
	if err != nil {
		return n, err
	}
	return n, l.tx.Bucket([]byte(format.Replay)).ForEach(func(k, v []byte) error {
		if v, err = l.seal.Open(format.Replay, k, v, 0); err != nil {
			return err
		}
		r, err := format.Decode[Replay]("replay", v)
		if err == nil && r.Ended.IsZero() {
			n.used[sagaVersion{r.Saga, r.Version}] = true
		}
		return err
	})
}

// historyDropped is the first day with history: the last day there can be if there is none, and 0
// for a key that is no day.
func (l *scan) historyDropped() uint32 {
	k, _ := l.tx.Bucket([]byte(format.History)).Cursor().First()
	switch {
	case k == nil:
		return ^uint32(0)
	case len(k) != format.PartSize:
		return 0
	}
	return binary.BigEndian.Uint32(k)
}

// text marks or unmarks a text, or takes it.
func (l *scan) text(m edda.Manifest, size int, n textNeeds, gone uint32) error {
	at := sagaVersion{m.Saga, m.Version}
	needed := n.used[at] || n.newest[m.Saga].Hash == m.Hash && n.newest[m.Saga].Version == m.Version ||
		n.texts[at] > 1 && n.first[at].Hash == m.Hash || l.cut.Loaded != nil && l.cut.Loaded(m)
	t := oldText(m)
	switch {
	case l.cut.Manifests.IsZero():
		return nil
	case needed == !m.Idle.IsZero() && !l.cut.Now.IsZero():
		if !needed {
			t.From = l.cut.Now.UTC()
		}
		return l.mark(t)
	case needed || m.Idle.IsZero() || !m.Idle.Before(l.cut.Manifests) || format.DayOf(m.Idle) >= gone:
		return nil
	}
	if err := l.room(maxGoneTexts); err != nil {
		return err
	}
	l.take(size)
	l.portion.Texts = append(l.portion.Texts, t)
	return nil
}

func (l *scan) mark(t OldText) error {
	if l.seen++; l.seen > maxScannedRows || len(l.portion.Idle) >= maxGoneTexts {
		return errFull
	}
	l.portion.Idle = append(l.portion.Idle, t)
	return nil
}

// expireTexts marks texts as idle or needed, and removes texts, unless they changed since the
// sweep or an instance began on their version.
func (w *writer) expireTexts(r *Removal) error {
	for _, t := range r.Idle {
		m, ok, err := w.text(t)
		if err != nil {
			return err
		}
		if !ok || !t.From.IsZero() && w.stands(t) {
			continue
		}
		m.Idle = t.From
		value, err := jsonvalue.Marshal(m)
		if err != nil {
			return fmt.Errorf("manifest: %w", err)
		}
		if err := w.bucket(format.Manifest).Put(t.key(), value); err != nil {
			return err
		}
	}
	for _, t := range r.Texts {
		if _, ok, err := w.text(t); err != nil {
			return err
		} else if !ok || w.stands(t) {
			continue
		}
		if err := w.bucket(format.Manifest).Delete(t.key()); err != nil {
			return err
		}
	}
	return nil
}

// text returns a text if its mark has not changed since the sweep.
func (w *writer) text(t OldText) (m edda.Manifest, ok bool, err error) {
	value := w.bucket(format.Manifest).Get(t.key())
	if value == nil {
		return m, false, nil
	}
	m, err = format.Decode[edda.Manifest]("manifest", value)
	return m, err == nil && m.Idle.Equal(t.Idle), err
}

// stands reports whether there is an instance of the version.
func (w *writer) stands(t OldText) bool {
	for _, counts := range []map[format.CountKey]int{w.staged.counts, w.staged.index.counts} {
		for key, n := range counts {
			if key.Saga == t.Saga && key.Version == t.Version && n > 0 {
				return true
			}
		}
	}
	return false
}
