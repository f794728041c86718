package mycelium

// memory remembers the last keys that it was given.
type memory struct {
	keys map[string]struct{}
	ring []string
	next int
}

func newMemory(size int) *memory {
	return &memory{keys: map[string]struct{}{}, ring: make([]string, size)}
}

// add tells whether the key is new, and forgets the oldest for it.
func (m *memory) add(key string) bool {
	if _, ok := m.keys[key]; ok {
		return false
	}
	delete(m.keys, m.ring[m.next])
	m.keys[key], m.ring[m.next] = struct{}{}, key
	m.next = (m.next + 1) % len(m.ring)
	return true
}
