/** `node --import`: loads `.env` into the environment; variables that are set already win. */
import { existsSync } from 'node:fs'

if (existsSync('.env')) process.loadEnvFile('.env')
