// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {ISplitter} from "../interfaces/ISplitter.sol";
import {ISplitterFactory} from "../interfaces/ISplitterFactory.sol";
import {BurningToken, FalseToken, LongWindedToken, ReentrantTransfers} from "./mocks/Tokens.sol";
import {SplitterTest} from "./support/SplitterTest.sol";
import {Vm} from "./support/Vm.sol";

/// @notice A splitter pays the right shares to the right recipients in all circumstances, on the real USDC.
contract SplittersTest is SplitterTest {
    function test_default_paysTheShares() public {
        address splitter = _filled(_usual(), 1_000);
        _sweep(_usual());
        _checkPaid(900, 100, "for 1,000");
        vm.assertEq(usdc.balanceOf(splitter), 0, "what waits");
        usdc.mint(splitter, 500);
        _sweep(_usual());
        _checkPaid(1_350, 150, "once it is deployed");
    }

    /// The index relies on the order of the token's logs: first the platform's part, then the provider's, and no other
    /// log.
    function test_default_logs() public {
        address splitter = _filled(_usual(), 1_000);
        factory.deploy(_usual(), PLATFORM);
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
        address splitter = factory.deploy(split, address(0xF00D));
        (address provider, uint256 providerShare, address platform, uint256 platformShare) =
            ISplitter(splitter).terms();
        vm.assertEq(provider, address(0xCAFE), "provider");
        vm.assertEq(providerShare, 3, "providerShare");
        vm.assertEq(platform, address(0xF00D), "platform");
        vm.assertEq(platformShare, 4, "platformShare");
        vm.assertEq(Clones.fetchCloneArgs(splitter), abi.encodePacked(split, address(0xF00D)), "arguments");
    }

    function test_default_termsAreItsAddress() public {
        address[5] memory splitters = [
            factory.splitterOf(_split(PROVIDER, 9, 1), PLATFORM),
            factory.splitterOf(_split(STRANGER, 9, 1), PLATFORM),
            factory.splitterOf(_split(PROVIDER, 8, 1), PLATFORM),
            factory.splitterOf(_split(PROVIDER, 9, 2), PLATFORM),
            factory.splitterOf(_split(PROVIDER, 9, 1), STRANGER)
        ];
        for (uint256 i; i < 5; ++i) {
            for (uint256 k; k < i; ++k) vm.assertTrue(splitters[i] != splitters[k], "different terms have different addresses");
        }
        vm.prank(STRANGER);
        vm.assertEq(factory.deploy(_usual(), PLATFORM), splitters[0], "deployed by a stranger");
        vm.assertEq(factory.deploy(_usual(), PLATFORM), splitters[0], "deployed again");
        address alone = Clones.predictDeterministicAddressWithImmutableArgs(
            factory.IMPLEMENTATION(), abi.encodePacked(_usual(), PLATFORM), 0, address(factory)
        );
        vm.assertEq(alone, splitters[0], "the address computed from the terms alone");
    }

    function test_args_largestShares() public {
        uint256 most = type(uint48).max;
        uint256 split = _split(PROVIDER, most, most);
        _filled(split, 7 * most);
        _sweep(split);
        _checkPaid((7 * most + 1) / 2, 7 * most / 2, "for the largest shares");
        (uint256 nearlyAll, uint256 nearlyNone) = (_split(PROVIDER, most, 1), _split(PROVIDER, 1, most));
        _filled(nearlyAll, most + 1);
        _filled(nearlyNone, most + 1);
        _sweep(nearlyAll);
        _sweep(nearlyNone);
        _checkPaid((7 * most + 1) / 2 + most + 1, 7 * most / 2 + most + 1, "for the least shares");
    }

    function test_args_oneShareOnly() public {
        _filled(_split(PROVIDER, 1, 0), 7);
        vm.recordLogs();
        _sweep(_split(PROVIDER, 1, 0));
        _checkPaid(7, 0, "no share for the platform");
        vm.assertEq(vm.getRecordedLogs().length, 1, "one transfer");
        _filled(_split(PROVIDER, 0, 1), 7);
        vm.recordLogs();
        _sweep(_split(PROVIDER, 0, 1));
        _checkPaid(7, 7, "no share for the provider");
        vm.assertEq(vm.getRecordedLogs().length, 1, "one transfer");
    }

    /// If someone else swept first, or nothing was paid yet, the sweep doesn't fail and deploys nothing.
    function test_behavior_nothingToSweep() public {
        address splitter = _splitterOf(_usual());
        vm.recordLogs();
        _sweep(_usual());
        vm.assertEq(splitter.code.length, 0, "an empty splitter isn't deployed");
        factory.deploy(_usual(), PLATFORM);
        _sweep(_usual());
        vm.assertEq(vm.getRecordedLogs().length, 0, "no logs");
    }

    /// The whole balance is paid, and the indivisible remainder goes to the provider.
    function test_behavior_theRemainderIsTheProviders() public {
        address splitter = _filled(_usual(), 9);
        _sweep(_usual());
        _checkPaid(9, 0, "for 9");
        usdc.mint(splitter, 10);
        _sweep(_usual());
        _checkPaid(18, 1, "for 10 more");
        usdc.mint(splitter, 19);
        _sweep(_usual());
        _checkPaid(36, 2, "for 19 more");
        vm.assertEq(usdc.balanceOf(splitter), 0, "what waits");
    }

    function test_fuzz_eachSweepRoundsForTheProvider(uint48 a, uint48 b, uint64[4] memory amounts) public {
        vm.assume(uint256(a) + b != 0);
        uint256 split = _split(PROVIDER, a, b);
        address splitter = _splitterOf(split);
        uint256 sum;
        uint256 platform;
        for (uint256 i; i < 4; ++i) {
            uint256 amount = uint256(amounts[i]) + 1;
            usdc.mint(splitter, amount);
            sum += amount;
            platform += amount * b / (uint256(a) + b);
            _sweep(split);
        }
        _checkPaid(sum - platform, platform, "for all that came");
        vm.assertEq(usdc.balanceOf(splitter), 0, "what waits");
    }

    // Sweeps by anyone, at any time.

    function test_behavior_anyoneMaySweepTheSplitterItself() public {
        address splitter = _filled(_usual(), 1_000);
        factory.deploy(_usual(), PLATFORM);
        vm.prank(STRANGER);
        ISplitter(splitter).sweep(address(usdc));
        _checkPaid(900, 100, "swept by a stranger");
    }

    function test_behavior_theSameLineTwice() public {
        _filled(_usual(), 1_000);
        uint256[] memory splits = new uint256[](3);
        (splits[0], splits[1], splits[2]) = (_usual(), _usual(), _split(PROVIDER, 19, 1));
        _filled(splits[2], 200);
        vm.recordLogs();
        _sweep(splits);
        vm.assertEq(vm.getRecordedLogs().length, 4, "four transfers and no failure");
        _checkPaid(900 + 190, 100 + 10, "each once");
    }

    /// Money from an authorization that a stranger sent straight to the token is split like any other.
    function test_behavior_paidWithoutABatch() public {
        payees[0] = _splitterOf(_usual());
        Terms memory terms = _terms(0);
        _fund(terms);
        _submit(terms, _provider(terms));
        _sweep(_usual());
        _checkPaid(42_750, 4_750, "for 47,500");
    }

    function test_behavior_anyErc20() public {
        address splitter = _filled(_usual(), 1_000);
        address first = address(usdc);
        usdc = _deployUsdc("Another");
        usdc.mint(splitter, 500);
        usdc.mint(PROVIDER, 1);
        usdc.mint(PLATFORM, 1);
        _sweep(_usual());
        _checkPaid(450, 50, "for the other token");
        factory.sweep(first, PLATFORM, _list(_usual()));
    }

    // Recipients that can't be paid.

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
        vm.assertEq(usdc.balanceOf(other), 1_800, "the other provider's balance");
        vm.assertEq(usdc.balanceOf(splitter), 1_000, "what waits");
        usdc.unBlacklist(PROVIDER);
        _sweep(splits[0]);
        _checkPaid(900, 300, "afterwards");
    }

    /// Checks the only SweepFailed among the recorded logs. USDC leaves nonzero bytes after the text.
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

    /// The platform's part waits in a splitter that pays only the platform, no matter how often others sweep.
    function test_behavior_blacklistedPlatformLosesNothing() public {
        _filled(_usual(), 1_000);
        uint256 own = _split(PLATFORM, 1, 0);
        usdc.blacklist(PLATFORM);
        for (uint256 i; i < 3; ++i) {
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

    /// The platform and the platform's own splitter are both blacklisted. Only the token's issuer can cause this, and
    /// could just as well blacklist every splitter.
    function test_behavior_blacklistedPlatformAndItsSplitter() public {
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

    // Nonsensical terms.

    function test_args_noShares() public {
        address splitter = _filled(_split(PROVIDER, 0, 0), 1_000);
        _sweep(_split(PROVIDER, 0, 0));
        vm.assertEq(usdc.balanceOf(splitter), 1_000, "what waits forever");
    }

    function test_args_zeroAddresses() public {
        address splitter = _filled(_split(address(0), 9, 1), 1_000);
        _sweep(_split(address(0), 9, 1));
        vm.assertEq(usdc.balanceOf(splitter), 1_000, "without a provider, everything waits forever");
        usdc.mint(factory.splitterOf(_usual(), address(0)), 1_000);
        factory.sweep(address(usdc), address(0), _list(_usual()));
        _checkPaid(900, 0, "without a platform, the provider is paid");
    }

    // Callers who send too little gas, and tokens that lie.

    /// With any gas limit, either both recipients are paid their shares, or neither is.
    function test_behavior_tooLittleGas() public {
        address splitter = factory.deploy(_usual(), PLATFORM);
        usdc.mint(splitter, 10_000);
        bool[2] memory seen;
        for (uint256 gasLimit = 20_000; gasLimit < 120_000; gasLimit += 500) {
            uint256 state = vm.snapshotState();
            vm.cool(address(usdc));
            (bool success,) = splitter.call{gas: gasLimit}(abi.encodeCall(ISplitter.sweep, (address(usdc))));
            _checkPaid(success ? 9_000 : 0, success ? 1_000 : 0, "with little gas");
            seen[success ? 1 : 0] = true;
            vm.revertToState(state);
        }
        vm.assertTrue(seen[0] && seen[1], "the limits include too little and enough gas");
    }

    function test_behavior_tokenThatReturnsFalse() public {
        FalseToken token = new FalseToken();
        factory.deploy(_usual(), PLATFORM);
        vm.recordLogs();
        factory.sweep(address(token), PLATFORM, _list(_usual()));
        vm.assertEq(vm.getRecordedLogs().length, 1, "only a SweepFailed");
    }

    function test_behavior_longAnswersAreCut() public {
        address token = address(new LongWindedToken());
        address splitter = factory.deploy(_usual(), PLATFORM);
        vm.expectEmit(true, true, true, true, address(factory));
        bytes memory reason = bytes.concat(bytes32(type(uint256).max), new bytes(100));
        emit ISplitterFactory.SweepFailed(token, splitter, reason);
        factory.sweep(token, PLATFORM, _list(_usual()));
    }

    function test_behavior_tokenThatBurnsAllGas() public {
        BurningToken token = new BurningToken();
        factory.deploy(_usual(), PLATFORM);
        uint256 gasBefore = gasleft();
        (bool success,) = address(factory).call{gas: 3_000_000}(
            abi.encodeCall(factory.sweep, (address(token), PLATFORM, _list(_usual())))
        );
        vm.assertTrue(success, "a token that burns all gas is reported like any other failure");
        uint256 gasUsed = gasBefore - gasleft();
        vm.assertLe(gasUsed, 3_010_000, "gas");
        // The factory sets no gas limit, because a fixed limit would be too low on a chain on which a transfer costs more gas.
        vm.assertGe(gasUsed, 2_900_000, "the sweep gets all gas");
    }

    /// A second sweep inside the first pays only the recipients.
    function test_behavior_tokenThatReenters() public {
        ReentrantTransfers token = new ReentrantTransfers(factory, _usual(), PLATFORM);
        address splitter = factory.deploy(_usual(), PLATFORM);
        token.mint(splitter, 1_000);
        factory.sweep(address(token), PLATFORM, _list(_usual()));
        uint256 out = token.balanceOf(PROVIDER) + token.balanceOf(PLATFORM);
        vm.assertEq(out + token.balanceOf(splitter), 1_000, "nothing is lost");
        vm.assertLe(token.balanceOf(PROVIDER), 900, "the provider's balance");
        vm.assertLe(token.balanceOf(PLATFORM), 100, "the platform's balance");
    }

    function test_error_tokenWithoutCode() public {
        factory.deploy(_usual(), PLATFORM);
        vm.recordLogs();
        factory.sweep(address(4), PLATFORM, _list(_usual()));
        vm.assertEq(vm.getRecordedLogs().length, 1, "only a SweepFailed");
    }
}
