/**
 * How people run `tollkeeper`, wherever we print it.
 *
 * Nobody has published that name yet. Plain `npx tollkeeper` would fetch whatever a stranger publishes under it and run that
 * with the keys in the environment; with this flag npx runs what is here or nothing. To be `npx tollkeeper` once it is ours.
 */
export const ownCommand = 'npx --no-install tollkeeper'

/** For whoever reads it elsewhere, as in a mail or a page. */
export const whereItRuns = 'in a checkout of Tollkeeper, or where its tarball is installed'
