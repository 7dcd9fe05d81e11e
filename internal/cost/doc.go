// Package cost estimates what a month of jobs costs: how long the database is awake, how many functions start,
// and the money, with Doze and with four other ways to run the same jobs. It is arithmetic: it reads no
// database, no clock and no setting.
//
// # How long the database is awake
//
// Whatever touches the database keeps it awake for L: as long as the work takes, and then its suspend time.
// It sleeps at a moment if nothing began within L before it. In a month of H = 720 hours with n touches:
//
//   - touches that are independent of each other, such as users' requests, leave it asleep for the share
//     exp(−n·L/H): the chance that none of a Poisson stream fell into the L before;
//   - touches at a fixed period, such as sweeps, leave it asleep for the share max(0, 1 − n·L/H).
//
// Sources that know nothing of each other multiply:
//
//	awake hours = H × (1 − exp(−n₁L₁/H) × … × max(0, 1 − n₂L₂/H) × …)
//
// It is the expected length of the union of [work, work + suspend time], the least that any queue could do,
// and what the bench measures of Doze (docs/operating.md). A stream that is busier at some hours than at others
// leaves more sleep than an even one, so the estimate is on the high side for it.
package cost
