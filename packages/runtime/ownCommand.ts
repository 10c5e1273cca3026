// This constant is in the SDK because the SDK's middleware also prints the command, and the SDK imports no other package of ours.
export { ownCommand, whereItRuns } from '@tollkeeper/sdk/middleware/ownCommand'
