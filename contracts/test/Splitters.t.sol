// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {ISplitter} from "../interfaces/ISplitter.sol";
import {ISplitterFactory} from "../interfaces/ISplitterFactory.sol";
import {BurningToken, FalseToken, LongWindedToken, ReentrantTransfers} from "./mocks/Tokens.sol";
import {SplitterTest} from "./support/SplitterTest.sol";
import {Vm} from "./support/Vm.sol";

/// @notice What a splitter pays to whom, whatever anybody does; on the real USDC.
contract SplittersTest is SplitterTest {
    function test_default_paysTheShares() public {
        address splitter = _filled(_usual(), 1_000);
        _sweep(_usual());
        _checkPaid(900, 100, "of 1,000");
        vm.assertEq(usdc.balanceOf(splitter), 0, "what waits");
        usdc.mint(splitter, 500);
        _sweep(_usual());
        _checkPaid(1_350, 150, "once it is deployed");
    }

    /// The order of the token's logs, which the index reads: the platform's part, then the provider's, and nothing else.
    function test_default_logs() public {
        address splitter = _filled(_usual(), 1_000);
        factory.deploy(_usual(), PLATFORM, 0);
        vm.recordLogs();
        _sweep(_usual());
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 2, "logs");
        address[2] memory recipients = [PLATFORM, PROVIDER];
        for (uint256 i; i < 2; ++i) {
            vm.assertEq(logs[i].emitter, address(usdc), "emitter");
            vm.assertEq(logs[i].topics[1], bytes32(uint256(uint160(splitter))), "from");
            vm.assertEq(logs[i].topics[2], bytes32(uint256(uint160(recipients[i]))), "to");
        }
    }

    function test_default_termsAreItsArguments() public {
        uint256 split = _split(address(0xCAFE), 3, 4);
        address splitter = factory.deploy(split, address(0xF00D), 5);
        (address provider, uint256 providerShare, address platform, uint256 platformShare, uint256 rewardShare) =
            ISplitter(splitter).terms();
        vm.assertEq(provider, address(0xCAFE), "provider");
        vm.assertEq(providerShare, 3, "providerShare");
        vm.assertEq(platform, address(0xF00D), "platform");
        vm.assertEq(platformShare, 4, "platformShare");
        vm.assertEq(rewardShare, 5, "rewardShare");
        bytes memory arguments = abi.encodePacked(split, address(0xF00D), uint48(5));
        vm.assertEq(Clones.fetchCloneArgs(splitter), arguments, "arguments");
    }

    function test_default_termsAreItsAddress() public {
        address[6] memory splitters = [
            factory.splitterOf(_split(PROVIDER, 9, 1), PLATFORM, 0),
            factory.splitterOf(_split(STRANGER, 9, 1), PLATFORM, 0),
            factory.splitterOf(_split(PROVIDER, 8, 1), PLATFORM, 0),
            factory.splitterOf(_split(PROVIDER, 9, 2), PLATFORM, 0),
            factory.splitterOf(_split(PROVIDER, 9, 1), STRANGER, 0),
            factory.splitterOf(_split(PROVIDER, 9, 1), PLATFORM, 1)
        ];
        for (uint256 i; i < 6; ++i) {
            for (uint256 k; k < i; ++k) vm.assertTrue(splitters[i] != splitters[k], "an address of its own");
        }
        vm.prank(STRANGER);
        vm.assertEq(factory.deploy(_usual(), PLATFORM, 0), splitters[0], "deployed by a stranger");
        vm.assertEq(factory.deploy(_usual(), PLATFORM, 0), splitters[0], "deployed again");
        address alone = Clones.predictDeterministicAddressWithImmutableArgs(
            factory.IMPLEMENTATION(), abi.encodePacked(_usual(), PLATFORM, uint48(0)), 0, address(factory)
        );
        vm.assertEq(alone, splitters[0], "as anybody can compute it");
    }

    function test_args_largestShares() public {
        uint256 most = type(uint48).max;
        uint256 split = _split(PROVIDER, most, most);
        address splitter = factory.splitterOf(split, PLATFORM, uint48(most));
        usdc.mint(splitter, 7 * 3 * most + 3 * most - 1);
        factory.sweep(address(usdc), PLATFORM, uint48(most), _list(split), STRANGER);
        _checkPaid(7 * most, 7 * most, "of the largest shares");
        vm.assertEq(usdc.balanceOf(STRANGER), 7 * most, "the reward");
        vm.assertEq(usdc.balanceOf(splitter), 3 * most - 1, "what waits");
    }

    function test_args_oneShareOnly() public {
        _filled(_split(PROVIDER, 1, 0), 7);
        _sweep(_split(PROVIDER, 1, 0));
        _checkPaid(7, 0, "no share for the platform");
        _filled(_split(PROVIDER, 0, 1), 7);
        _sweep(_split(PROVIDER, 0, 1));
        _checkPaid(7, 7, "no share for the provider");
    }

    function test_behavior_lessThanAUnitWaits() public {
        address splitter = _filled(_usual(), 9);
        _expectNothingToSweep(splitter, 9);
        _sweep(_usual());
        vm.assertEq(splitter.code.length, 0, "nothing is deployed for nothing");
        factory.deploy(_usual(), PLATFORM, 0);
        _expectNothingToSweep(splitter, 9);
        _sweep(_usual());
        usdc.mint(splitter, 10);
        _sweep(_usual());
        _checkPaid(9, 1, "of 19");
        vm.assertEq(usdc.balanceOf(splitter), 9, "what waits");
    }

    function test_args_exactlyOneUnit() public {
        _filled(_usual(), 10);
        _sweep(_usual());
        _checkPaid(9, 1, "of 10");
    }

    function test_fuzz_sumsOutAreTheRatioOfTheSumIn(uint48 a, uint48 b, uint48 reward, uint64[4] memory amounts) public {
        uint256 unit = uint256(a) + b + reward;
        vm.assume(unit != 0);
        uint256 split = _split(PROVIDER, a, b);
        address splitter = factory.splitterOf(split, PLATFORM, reward);
        uint256 sum;
        for (uint256 i; i < 4; ++i) {
            usdc.mint(splitter, uint256(amounts[i]) + 1);
            sum += uint256(amounts[i]) + 1;
            factory.sweep(address(usdc), PLATFORM, reward, _list(split), STRANGER);
        }
        _checkPaid(sum / unit * a, sum / unit * b, "of all that came");
        vm.assertEq(usdc.balanceOf(STRANGER), sum / unit * reward, "the reward");
        vm.assertEq(usdc.balanceOf(splitter), sum % unit, "the remainder is below one unit");
    }

    // Who may sweep, and when.

    function test_behavior_anyoneMaySweepTheSplitterItself() public {
        address splitter = _filled(_usual(), 1_000);
        factory.deploy(_usual(), PLATFORM, 0);
        vm.prank(STRANGER);
        ISplitter(splitter).sweep(address(usdc), STRANGER);
        _checkPaid(900, 100, "swept by a stranger");
        vm.assertEq(usdc.balanceOf(STRANGER), 0, "the stranger's");
    }

    function test_behavior_theSameLineTwice() public {
        address splitter = _filled(_usual(), 1_000);
        uint256[] memory splits = new uint256[](3);
        (splits[0], splits[1], splits[2]) = (_usual(), _usual(), _split(PROVIDER, 19, 1));
        _filled(splits[2], 200);
        _expectNothingToSweep(splitter, 0);
        _sweep(splits);
        _checkPaid(900 + 190, 100 + 10, "each once");
    }

    /// An authorization that a stranger sent straight to the token is money like any other.
    function test_behavior_paidWithoutABatch() public {
        payees[0] = _splitterOf(_usual());
        Terms memory terms = _terms(0);
        _fund(terms);
        _submit(terms, _provider(terms));
        _sweep(_usual());
        _checkPaid(42_750, 4_750, "of 47,500");
    }

    function test_behavior_anyErc20() public {
        address splitter = _filled(_usual(), 1_000);
        address first = address(usdc);
        usdc = _deployUsdc("Another");
        usdc.mint(splitter, 500);
        usdc.mint(PROVIDER, 1);
        usdc.mint(PLATFORM, 1);
        _sweep(_usual());
        _checkPaid(450, 50, "of the other token");
        factory.sweep(first, PLATFORM, 0, _list(_usual()), STRANGER);
    }

    // The reward.

    function test_args_reward() public {
        uint256 split = _split(PROVIDER, 90, 9);
        usdc.mint(factory.splitterOf(split, PLATFORM, 1), 1_000);
        vm.recordLogs();
        factory.sweep(address(usdc), PLATFORM, 1, _list(split), STRANGER);
        _checkPaid(900, 90, "with a reward");
        vm.assertEq(usdc.balanceOf(STRANGER), 10, "the reward");
    }

    function test_behavior_blacklistedRewardIsThePlatforms() public {
        uint256 split = _split(PROVIDER, 90, 9);
        usdc.mint(factory.splitterOf(split, PLATFORM, 1), 1_000);
        usdc.blacklist(STRANGER);
        factory.sweep(address(usdc), PLATFORM, 1, _list(split), STRANGER);
        _checkPaid(900, 100, "with a reward that can't be paid");
    }

    /// What is sent back to the splitter is split again; the provider's part of the rest stays whole.
    function test_behavior_rewardToTheSplitterItself() public {
        uint256 split = _split(PROVIDER, 90, 9);
        address splitter = factory.splitterOf(split, PLATFORM, 1);
        usdc.mint(splitter, 10_000);
        factory.sweep(address(usdc), PLATFORM, 1, _list(split), splitter);
        _checkPaid(9_000, 900, "the reward stays");
        vm.assertEq(usdc.balanceOf(splitter), 100, "what waits");
    }

    // Whoever can't be paid.

    function test_behavior_blacklistedProviderStopsNoOther() public {
        address other = address(0xCAFE);
        uint256[] memory splits = new uint256[](2);
        (splits[0], splits[1]) = (_usual(), _split(other, 9, 1));
        address splitter = _filled(splits[0], 1_000);
        _filled(splits[1], 2_000);
        usdc.blacklist(PROVIDER);
        vm.recordLogs();
        _sweep(splits);
        _checkFailure(splitter, "Blacklistable: account is blacklisted");
        _checkPaid(0, 200, "while the provider is blacklisted");
        vm.assertEq(usdc.balanceOf(other), 1_800, "the other provider's");
        vm.assertEq(usdc.balanceOf(splitter), 1_000, "what waits");
        usdc.unBlacklist(PROVIDER);
        _sweep(splits[0]);
        _checkPaid(900, 300, "afterwards");
    }

    /// The only SweepFailed among the recorded logs. USDC leaves dirt behind its words.
    function _checkFailure(address splitter, string memory words) private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        uint256 count;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != ISplitterFactory.SweepFailed.selector) continue;
            ++count;
            vm.assertEq(logs[i].topics[1], bytes32(uint256(uint160(address(usdc)))), "token of the failure");
            vm.assertEq(logs[i].topics[2], bytes32(uint256(uint160(splitter))), "splitter of the failure");
            bytes memory reason = abi.decode(logs[i].data, (bytes));
            bytes memory arguments = new bytes(reason.length - 4);
            for (uint256 k; k < arguments.length; ++k) arguments[k] = reason[k + 4];
            vm.assertEq(abi.decode(arguments, (string)), words, "reason of the failure");
        }
        vm.assertEq(count, 1, "failures");
    }

    /// Its part waits where nothing but itself can ever be paid, however often others sweep.
    function test_behavior_blacklistedPlatformLosesNothing() public {
        address splitter = _filled(_usual(), 1_000);
        uint256 own = _split(PLATFORM, 1, 0);
        usdc.blacklist(PLATFORM);
        for (uint256 i; i < 3; ++i) {
            if (i > 0) _expectNothingToSweep(splitter, 0);
            _sweep(_usual());
            _checkPaid(900, 0, "while the platform is blacklisted");
            vm.assertEq(usdc.balanceOf(_splitterOf(own)), 100, "what waits for the platform");
        }
        _sweep(own);
        vm.assertEq(usdc.balanceOf(_splitterOf(own)), 100, "it can't be paid yet");
        usdc.unBlacklist(PLATFORM);
        _sweep(own);
        _checkPaid(900, 100, "afterwards");
    }

    function test_behavior_blacklistedPlatformAndReward() public {
        uint256 split = _split(PROVIDER, 90, 9);
        usdc.mint(factory.splitterOf(split, PLATFORM, 1), 1_000);
        usdc.blacklist(PLATFORM);
        factory.sweep(address(usdc), PLATFORM, 1, _list(split), PLATFORM);
        _checkPaid(900, 0, "while the platform is blacklisted");
        vm.assertEq(usdc.balanceOf(_splitterOf(_split(PLATFORM, 1, 0))), 100, "what waits for the platform");
    }

    /// Only the token's issuer can do this, and it can blacklist each splitter as well.
    function test_behavior_blacklistedPlatformWithoutARefuge() public {
        address splitter = _filled(_usual(), 1_000);
        usdc.blacklist(PLATFORM);
        usdc.blacklist(_splitterOf(_split(PLATFORM, 1, 0)));
        _sweep(_usual());
        _checkPaid(0, 0, "while neither can be paid");
        vm.assertEq(usdc.balanceOf(splitter), 1_000, "what waits");
    }

    function test_behavior_blacklistedSplitter() public {
        address splitter = _filled(_usual(), 1_000);
        usdc.blacklist(splitter);
        _sweep(_usual());
        _checkPaid(0, 0, "while the splitter is blacklisted");
        usdc.unBlacklist(splitter);
        _sweep(_usual());
        _checkPaid(900, 100, "afterwards");
    }

    function test_behavior_pausedToken() public {
        _filled(_usual(), 1_000);
        usdc.pause();
        _sweep(_usual());
        _checkPaid(0, 0, "while the token is paused");
        usdc.unpause();
        _sweep(_usual());
        _checkPaid(900, 100, "afterwards");
    }

    // Terms that make no sense.

    function test_args_noShares() public {
        address splitter = _filled(_split(PROVIDER, 0, 0), 1_000);
        _sweep(_split(PROVIDER, 0, 0));
        vm.assertEq(usdc.balanceOf(splitter), 1_000, "what waits for ever");
    }

    function test_args_zeroAddresses() public {
        address splitter = _filled(_split(address(0), 9, 1), 1_000);
        _sweep(_split(address(0), 9, 1));
        vm.assertEq(usdc.balanceOf(splitter), 1_000, "without a provider, all waits for ever");
        usdc.mint(factory.splitterOf(_usual(), address(0), 0), 1_000);
        factory.sweep(address(usdc), address(0), 0, _list(_usual()), STRANGER);
        _checkPaid(900, 0, "without a platform, the provider is paid");
    }

    // Callers who send too little gas, and tokens that lie.

    /// Nobody is ever paid alone: with any gas, all three are paid what is theirs, or nobody is.
    function test_behavior_tooLittleGas() public {
        uint256 split = _split(PROVIDER, 90, 9);
        address splitter = factory.deploy(split, PLATFORM, 1);
        usdc.mint(splitter, 10_000);
        usdc.mint(STRANGER, 1);
        bool[2] memory seen;
        for (uint256 gasLimit = 20_000; gasLimit < 160_000; gasLimit += 500) {
            uint256 state = vm.snapshotState();
            vm.cool(address(usdc));
            (bool success,) =
                splitter.call{gas: gasLimit}(abi.encodeCall(ISplitter.sweep, (address(usdc), STRANGER)));
            _checkPaid(success ? 9_000 : 0, success ? 900 : 0, "with little gas");
            vm.assertEq(usdc.balanceOf(STRANGER) - 1, success ? 100 : 0, "the reward, with little gas");
            seen[success ? 1 : 0] = true;
            vm.revertToState(state);
        }
        vm.assertTrue(seen[0] && seen[1], "both too little and enough");
    }

    function test_behavior_tokenThatSaysFalse() public {
        FalseToken token = new FalseToken();
        factory.deploy(_usual(), PLATFORM, 0);
        vm.recordLogs();
        factory.sweep(address(token), PLATFORM, 0, _list(_usual()), STRANGER);
        vm.assertEq(vm.getRecordedLogs().length, 1, "a SweepFailed and nothing else");
    }

    function test_behavior_longAnswersAreCut() public {
        address token = address(new LongWindedToken());
        address splitter = factory.deploy(_usual(), PLATFORM, 0);
        vm.expectEmit(true, true, true, true, address(factory));
        bytes memory reason = bytes.concat(bytes32(type(uint256).max), new bytes(100));
        emit ISplitterFactory.SweepFailed(token, splitter, reason);
        factory.sweep(token, PLATFORM, 0, _list(_usual()), STRANGER);
    }

    function test_behavior_tokenThatBurnsAllGas() public {
        BurningToken token = new BurningToken();
        factory.deploy(_usual(), PLATFORM, 0);
        uint256 gasBefore = gasleft();
        (bool success,) = address(factory).call{gas: 3_000_000}(
            abi.encodeCall(factory.sweep, (address(token), PLATFORM, 0, _list(_usual()), STRANGER))
        );
        vm.assertTrue(success, "one that burns is told like any other");
        uint256 gasUsed = gasBefore - gasleft();
        vm.assertLe(gasUsed, 3_010_000, "gas");
        // A cap of our own would be too small one day, on a chain on which a transfer costs more.
        vm.assertGe(gasUsed, 2_900_000, "nothing is kept from the sweep");
    }

    /// A second sweep inside the first takes nothing that isn't the recipients'.
    function test_behavior_tokenThatReenters() public {
        ReentrantTransfers token = new ReentrantTransfers(factory, _usual(), PLATFORM);
        address splitter = factory.deploy(_usual(), PLATFORM, 0);
        token.mint(splitter, 1_000);
        factory.sweep(address(token), PLATFORM, 0, _list(_usual()), STRANGER);
        uint256 out = token.balanceOf(PROVIDER) + token.balanceOf(PLATFORM);
        vm.assertEq(out + token.balanceOf(splitter), 1_000, "nothing is lost");
        vm.assertLe(token.balanceOf(PROVIDER), 900, "the provider's");
        vm.assertLe(token.balanceOf(PLATFORM), 100, "the platform's");
    }

    function test_error_tokenWithoutCode() public {
        factory.deploy(_usual(), PLATFORM, 0);
        vm.recordLogs();
        factory.sweep(address(4), PLATFORM, 0, _list(_usual()), STRANGER);
        vm.assertEq(vm.getRecordedLogs().length, 1, "a SweepFailed and nothing else");
    }
}
