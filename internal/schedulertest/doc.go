// Package schedulertest is a double of Amazon EventBridge Scheduler in one process: schedules of one
// time, made, replaced, read and deleted over the API that SDKs speak, which invoke a func of the
// test when they are due and can be made to misbehave as the real ones may.
//
// It has the traps of the real service. An update replaces everything, and a field that it leaves out
// has its default again. A schedule with ActionAfterCompletion DELETE is deleted some time after it
// went off, and an update that lands in between is taken and then deleted with it: the service does
// not say what becomes of such an update, so the double does the worst.
//
// Time is a clock that the test moves with [Server.Advance], or the real one sped up by
// [Options.Scale]. Rates, crons, groups as resources, lists, tags, flexible windows and signatures of
// requests are not modelled.
//
// API: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_Operations.html.
package schedulertest
