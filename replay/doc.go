// Package replay builds the instances of a saga again from what is recorded, and
// puts them in the place of the stored ones.
//
// What it promises:
//
//   - Live processing goes on meanwhile, also of the saga that is replayed: an
//     instance is exchanged in one change set, on top of everything it has taken by
//     then, or not at all.
//   - Nothing is exchanged before everything was built: a replay that cannot be
//     done changes nothing.
//   - A replay is a row of the store. After a crash it is gone on with; instances
//     that are exchanged already come out the same again.
//   - With what history was decided by, the same state comes out, to the byte.
//   - Nothing goes out that was not asked for, and what went out by the records
//     never goes out again but where all of it was asked for.
//
// What it refuses: to remove an instance, and to build one from less than what
// began it.
package replay
