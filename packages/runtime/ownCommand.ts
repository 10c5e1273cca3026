/**
 * How people run `tollkeeper`, wherever we print it.
 *
 * Nobody has published that name yet. Plain `npx tollkeeper` would fetch whatever a stranger publishes under it and run it with
 * the keys in the environment; with this flag npx runs only what is installed here. Make it `npx tollkeeper` once it is ours.
 */
export const ownCommand = 'npx --no-install tollkeeper'

/** Where the command runs, for readers elsewhere, as of a mail or a page. */
export const whereItRuns = 'in a checkout of Tollkeeper, or where its tarball is installed'
