package cluster

// Do is what the caller of an [Append] does next.
type Do int

const (
	Send      Do = iota + 1 // send Message, to be stored only if the log ends at Expected
	Look                    // ask the leader for the last message of the log
	Committed               // the record is in the log for good, and Mark is behind it
	Fenced                  // another node has a later epoch: never append again
	Moved                   // the log has gone on without this record: read it and take over again
)

// Instruction is what the protocol wants done next.
type Instruction struct {
	Do       Do
	Expected uint64
	Message  Message
	Mark     Mark
}

// Last is the last message of the log. It is zero for an empty log.
type Last struct {
	Seq     uint64
	Message Message
}

// LSN is that of the last record that the log has whole.
func (l Last) LSN() uint64 {
	if l.Message.Kind == Entry && l.Message.Part < l.Message.Parts {
		return l.Message.LSN - 1
	}
	return l.Message.LSN
}

// Append is one record on its way into the log, part by part. It is a value: each method returns the
// changed append and what to do. Every part names the sequence of the message before, which is
// acknowledged, so a part is stored behind exactly the messages that the writer knows.
type Append struct {
	record Record
	sum    uint32
	limit  int // bytes of an entry in one message
	parts  int
	part   int    // in flight, from 1
	seq    uint64 // of the message before it: acknowledged
}

// Begin starts the append of a record behind a mark. The record must follow the mark. The entry goes
// in parts of at most limit bytes.
func Begin(after Mark, r Record, limit int) (Append, Instruction) {
	parts := max(1, (len(r.Entry)+limit-1)/limit)
	a := Append{record: r, sum: r.Sum(), limit: limit, parts: parts, part: 1, seq: after.Seq}
	return a, a.send()
}

func (a Append) send() Instruction {
	return Instruction{Do: Send, Expected: a.seq, Message: a.message()}
}

func (a Append) message() Message {
	m := Message{Record: a.record, Sum: a.sum, Part: a.part, Parts: a.parts}
	from := (a.part - 1) * a.limit
	m.Entry = a.record.Entry[from:min(len(a.record.Entry), from+a.limit)]
	return m
}

// Acked handles the acknowledgement of the message in flight: it is in the log at a sequence.
func (a Append) Acked(seq uint64) (Append, Instruction) {
	if seq != a.seq+1 {
		return a, Instruction{Do: Look}
	}
	a.seq = seq
	if a.part < a.parts {
		a.part++
		return a, a.send()
	}
	return a, Instruction{Do: Committed, Mark: Mark{Seq: seq, LSN: a.record.LSN, Epoch: a.record.Epoch, Sum: a.sum, State: a.record.State}}
}

// Unsure handles a send without an acknowledgement: no answer in time, a lost connection, or a
// refusal. A refusal says little: an earlier send of the same message may have been stored.
func (a Append) Unsure() (Append, Instruction) { return a, Instruction{Do: Look} }

// Looked handles the last message of the log, as the leader knows it. A leader that has been deposed
// may answer with an earlier end of the log. That is harmless: what it shows is in the log, and a
// send that it causes is refused.
func (a Append) Looked(last Last) (Append, Instruction) {
	switch {
	case last.Seq == a.seq+1 && last.Message.same(a.message()):
		return a.Acked(last.Seq)
	case last.Message.Epoch > a.record.Epoch:
		return a, Instruction{Do: Fenced}
	case last.Seq == a.seq && !a.behind(last.Message): // the log has lost its end, and went on without it
		return a, Instruction{Do: Moved}
	case last.Seq == a.seq: // the message in flight was not stored; the compare-and-set stores one of all its sends
		return a, a.send()
	case last.Seq < a.seq: // the log ended further on already, so this is no answer of its leader
		return a, Instruction{Do: Look}
	default:
		return a, Instruction{Do: Moved}
	}
}

// behind reports whether the part in flight comes behind a message: the part before, the record before, or a part of
// an unfinished record that followed the same record.
func (a Append) behind(last Message) bool {
	switch {
	case a.part > 1:
		return last.Sum == a.sum
	case last.Part < last.Parts:
		return last.Prev == a.record.Prev
	}
	return last.Sum == a.record.Prev
}
