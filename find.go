package edda

import "unicode/utf8"

// Check tells what [Decode] would say is wrong with data, without making the value.
func Check(data []byte) error {
	r := reader{text: string(data)}
	if r.skip(0) {
		if r.space(); r.at == len(r.text) {
			return nil
		}
	}
	_, err := decodeAny(data)
	return err
}

// Find is the member that a path of names leads to, of the JSON in text, as [Decode] and
// a walk through the maps would give it: one that is not there, and one of null, is null. No
// other member is made. Where ok is false nothing is said, and Decode has to tell: the
// text is not plain JSON, or the path leads through what is no map.
func Find(text string, path []string) (v any, ok bool) {
	r := reader{text: text}
	v, ok = r.member(path, 0)
	r.space()
	return v, ok && r.at == len(r.text)
}

// member reads on to the end of the value: of two members of one name the last counts.
func (r *reader) member(path []string, depth int) (v any, ok bool) {
	if len(path) == 0 {
		return r.value(depth)
	}
	r.space()
	switch {
	case r.at == len(r.text) || depth > MaxDepth:
		return nil, false
	case r.text[r.at] == 'n':
		return nil, r.word("null")
	case r.text[r.at] != '{':
		return nil, false
	}
	ok = r.members(func(name string) (ok bool) {
		if name != path[0] {
			return r.skip(depth + 1)
		}
		v, ok = r.member(path[1:], depth+1)
		return ok
	})
	return v, ok
}

// skip goes past a value that value would read.
func (r *reader) skip(depth int) bool {
	r.space()
	if r.at == len(r.text) || depth > MaxDepth {
		return false
	}
	switch r.text[r.at] {
	case '{':
		return r.members(func(string) bool { return r.skip(depth + 1) })
	case '[':
		return r.skipList(depth)
	case '"':
		_, ok := r.name()
		return ok
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.word("null")
	}
	return r.skipNumber()
}

// members goes through an object; each goes past the value of a name.
func (r *reader) members(each func(name string) bool) bool {
	r.at++
	if r.take('}') {
		return true
	}
	for {
		r.space()
		name, ok := r.name()
		if !ok || !r.take(':') || !each(name) {
			return false
		}
		if r.take('}') {
			return true
		}
		if !r.take(',') {
			return false
		}
	}
}

// name is a text that nobody keeps.
func (r *reader) name() (string, bool) {
	begin := r.at
	escaped, ascii, ok := r.quoted()
	if !ok {
		return "", false
	}
	if escaped {
		return unescaped(r.text[begin:r.at])
	}
	s := r.text[begin+1 : r.at-1]
	return s, ascii || utf8.ValidString(s)
}

func (r *reader) skipList(depth int) bool {
	r.at++
	if r.take(']') {
		return true
	}
	for {
		if !r.skip(depth + 1) {
			return false
		}
		if r.take(']') {
			return true
		}
		if !r.take(',') {
			return false
		}
	}
}

func (r *reader) skipNumber() bool {
	_, ok := r.numeral()
	return ok
}
