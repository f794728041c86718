package fields

import (
	"encoding/binary"
	"math/bits"

	"edda"
)

// scan goes through JSON and tells whether it is right, as encoding/json has it.
type scan struct {
	text   []byte
	at     int
	wrong  bool // or nested too deep to be told here
	spaced bool // there is space between its parts
}

func (s *scan) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
			s.spaced = true
		default:
			return
		}
	}
}

// next is the byte that comes next, behind space; 0 at the end.
func (s *scan) next() byte {
	if s.at < len(s.text) && s.text[s.at] <= ' ' {
		s.space()
	}
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

func (s *scan) value(depth int) {
	switch c := s.next(); {
	case depth > edda.MaxDepth:
		s.wrong = true
	case c == '{':
		s.members(depth)
	case c == '[':
		s.items(depth)
	case c == '"':
		s.quoted()
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	default:
		s.number()
	}
}

func (s *scan) members(depth int) {
	s.at++
	if s.next() == '}' {
		s.at++
		return
	}
	for !s.wrong {
		if s.next() != '"' {
			s.wrong = true
			return
		}
		s.quoted()
		s.expect(':')
		s.value(depth + 1)
		if s.last('}') {
			return
		}
	}
}

func (s *scan) items(depth int) {
	s.at++
	if s.next() == ']' {
		s.at++
		return
	}
	for !s.wrong {
		s.value(depth + 1)
		if s.last(']') {
			return
		}
	}
}

// last goes past what stands behind an item, and tells whether it was the last.
func (s *scan) last(end byte) bool {
	if s.next() == end {
		s.at++
		return true
	}
	s.expect(',')
	return false
}

func (s *scan) expect(c byte) {
	if s.wrong || s.next() != c {
		s.wrong = true
		return
	}
	s.at++
}

func (s *scan) word(w string) {
	if len(s.text)-s.at < len(w) || string(s.text[s.at:s.at+len(w)]) != w {
		s.wrong = true
		return
	}
	s.at += len(w)
}

func (s *scan) quoted() {
	for s.at++; !s.wrong; s.at++ {
		s.at += ordinary(s.text[s.at:])
		switch {
		case s.at == len(s.text) || s.text[s.at] < ' ':
			s.wrong = true
			return
		case s.text[s.at] == '"':
			s.at++
			return
		default:
			s.escape()
		}
	}
}

// Eight bytes of a text are looked at together, as the bytes of one word.
const (
	wordBytes = 8
	eachByte  = 0x0101010101010101
	highBits  = 0x80 * eachByte
)

// ordinary is how many bytes come before the next control character, quote or backslash:
// taking 1, or the space, from such a byte sets its highest bit. Where it sets that of a
// byte behind it too, the lowest one is right.
func ordinary(text []byte) (n int) {
	for ; n+wordBytes <= len(text); n += wordBytes {
		w := binary.LittleEndian.Uint64(text[n:])
		quote, backslash := w^'"'*eachByte, w^'\\'*eachByte
		if found := ((w-' '*eachByte)&^w | (quote-eachByte)&^quote | (backslash-eachByte)&^backslash) & highBits; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(text) && text[n] >= ' ' && text[n] != '"' && text[n] != '\\' {
		n++
	}
	return n
}

// escape ends on the last byte of an escape.
func (s *scan) escape() {
	switch s.after() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at++
	case 'u':
		s.at++
		for range 4 {
			if !hex(s.after()) {
				s.wrong = true
				return
			}
			s.at++
		}
	default:
		s.wrong = true
	}
}

// after is the byte behind this one; 0 at the end.
func (s *scan) after() byte {
	if s.at+1 >= len(s.text) {
		return 0
	}
	return s.text[s.at+1]
}

func hex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func (s *scan) number() {
	s.sign("-")
	if s.at < len(s.text) && s.text[s.at] == '0' {
		s.at++
	} else {
		s.digits()
	}
	if s.sign(".") {
		s.digits()
	}
	if s.sign("eE") {
		s.sign("+-")
		s.digits()
	}
}

// sign goes past one of some bytes, if it is next.
func (s *scan) sign(any string) bool {
	for i := range len(any) {
		if s.at < len(s.text) && s.text[s.at] == any[i] {
			s.at++
			return true
		}
	}
	return false
}

// digits goes past one digit or more.
func (s *scan) digits() {
	begin := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	s.wrong = s.wrong || s.at == begin
}
