// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {ITabSettlement} from "../interfaces/ITabSettlement.sol";
import {ReentrantToken, YesToken} from "./mocks/Tokens.sol";
import {IFiatToken} from "./support/IFiatToken.sol";
import {TabTest} from "./support/TabTest.sol";
import {Vm} from "./support/Vm.sol";

/// @notice Tabs that settled pay the right amounts to the right recipients, even if a recipient is unusual or the
/// token's issuer blacklists it.
contract TabPayoutsTest is TabTest {
    function _settleOne() private {
        vm.assertEq(_settle(_goodBills(0, 1)), hex"10", "outcomes");
    }

    /// Settles a tab with one line of this split.
    function _settleSplit(uint256 split, uint256 amount) private {
        splits[0] = split;
        Bill memory bill = _bill(uint256(keccak256(abi.encode(split, amount))));
        bill.lines = new Line[](1);
        bill.lines[0] = Line(0, amount);
        _fund(bill);
        vm.assertEq(_settle(_only(bill)), hex"10", "outcomes");
    }

    /// Returns the accounts that the contract paid, in order, from the token's logs.
    function _payouts() private returns (address[] memory recipients) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        recipients = new address[](logs.length);
        uint256 count;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != IFiatToken.Transfer.selector) continue;
            if (address(uint160(uint256(logs[i].topics[1]))) != address(tabSettlement)) continue;
            recipients[count++] = address(uint160(uint256(logs[i].topics[2])));
        }
        assembly ("memory-safe") {
            mstore(recipients, count)
        }
    }

    /// Indexers rely on the order of the logs: between this contract's two events come the payouts, one for each
    /// provider, then the caller's, then the platform's.
    function test_default_logs() public {
        Bill[] memory bills = _goodBills(0, 3);
        vm.recordLogs();
        _settle(bills);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        // Each tab that is pulled logs an AuthorizationUsed and a Transfer.
        vm.assertEq(logs.length, 3 * 2 + 1 + 4 + 1, "logs");
        vm.assertEq(logs[6].topics[0], ITabSettlement.TabsSettled.selector, "TabsSettled before the payouts");
        address[4] memory recipients = [PROVIDER, OTHER, KEEPER, PLATFORM];
        for (uint256 i; i < 4; ++i) {
            vm.assertEq(logs[7 + i].topics[2], bytes32(uint256(uint160(recipients[i]))), "to");
        }
        vm.assertEq(logs[11].topics[0], IBatchSettlement.BatchSettled.selector, "BatchSettled at the end");
    }

    // Shares.

    function test_behavior_roundsEachLineForTheProvider() public {
        Bill memory bill = _bill(0);
        bill.lines = new Line[](3);
        (bill.lines[0], bill.lines[1], bill.lines[2]) = (Line(0, 19), Line(0, 39), Line(0, 41));
        _fund(bill);
        _settle(_only(bill));
        _checkBalances(96, 0, 3, "for three lines");
    }

    function test_args_oneShareOnly() public {
        vm.recordLogs();
        _settleSplit(_split(PROVIDER, 1, 0), 1_000);
        _checkBalances(1_000, 0, 0, "no share for the platform");
        vm.assertEq(_payouts().length, 1, "payouts");
        vm.recordLogs();
        _settleSplit(_split(PROVIDER, 0, 1), 1_000);
        _checkBalances(1_000, 0, 1_000, "no share for the provider");
        vm.assertEq(_payouts().length, 2, "payouts");
    }

    /// Everything goes to the provider, and no other tab is affected.
    function test_args_noShares() public {
        splits[0] = _split(PROVIDER, 0, 0);
        _settle(_goodBills(0, 2));
        _checkBalances(80_000, 18_000, 2_000, "without shares");
    }

    function test_args_largestShares() public {
        uint256 most = type(uint48).max;
        uint256 state = vm.snapshotState();
        _settleSplit(_split(PROVIDER, most, most), most);
        _checkBalances((most + 1) / 2, 0, most / 2, "for the largest shares");
        vm.revertToState(state);
        _settleSplit(_split(PROVIDER, 1, most), most);
        _checkBalances(1, 0, most - 1, "for nearly all for the platform");
    }

    function test_fuzz_anyShares(uint48 providerShare, uint48 platformShare, uint48 amount) public {
        vm.assume(amount != 0);
        _settleSplit(_split(PROVIDER, providerShare, platformShare), amount);
        uint256 whole = uint256(providerShare) + platformShare;
        uint256 part = whole == 0 ? 0 : uint256(amount) * platformShare / whole;
        _checkBalances(amount - part, 0, part, "for any shares");
    }

    // One payout per provider.

    function test_behavior_adjacentSplitsArePaidTogether() public {
        splits[1] = _split(PROVIDER, 9, 1);
        splits.push(_split(OTHER, 1, 1));
        Bill[] memory bills = _goodBills(0, 2);
        bills[1].lines[0].split = 2;
        vm.recordLogs();
        _settle(bills);
        vm.assertEq(abi.encodePacked(_payouts()), abi.encodePacked([PROVIDER, OTHER, KEEPER, PLATFORM]), "payouts");
        _checkBalances(TO_PROVIDER + 18_000, 20_000, 2_000 + 2_000 + 20_000, "for three splits");
    }

    function test_behavior_splitsWithoutLines() public {
        splits.push(_split(address(0xF00D), 1, 1));
        vm.recordLogs();
        _settleOne();
        vm.assertEq(_payouts().length, 4, "payouts");
        _checkGood(1, "next to a split without lines");
    }

    /// Tabs that failed or weren't tried are paid to no one.
    function test_behavior_onlyWhatSettledIsPaid() public {
        Bill[] memory bills = _goodBills(0, 4);
        (bills[0].lines[0].amount, bills[1].expiry) = (50_000, NOW);
        _settle(_only(bills[2]));
        vm.assertEq(_settle(bills), hex"30502010", "outcomes");
        _checkGood(2, "for the two that settled");
    }

    // The reward.

    function test_args_reward() public {
        uint16[4] memory shares = [0, 1, 5_000, 10_000];
        for (uint256 i; i < 4; ++i) {
            uint256 state = vm.snapshotState();
            ITabSettlement.Batch memory batch = _tabBatch();
            batch.rewardShare = shares[i];
            Packed memory packed = _packFor(batch);
            vm.recordLogs();
            vm.assertEq(_settle(batch, packed), hex"10", "outcomes");
            uint256 reward = uint256(TO_PLATFORM) * shares[i] / 10_000;
            vm.assertEq(_payouts().length, reward == 0 || reward == TO_PLATFORM ? 3 : 4, "payouts");
            vm.assertEq(usdc.balanceOf(KEEPER) - 1, reward, "the keeper's balance");
            vm.assertEq(usdc.balanceOf(PLATFORM) - 1, TO_PLATFORM - reward, "the platform's balance");
            vm.revertToState(state);
        }
    }

    /// Packs one tab, signed for `batch` instead of the default batch.
    function _packFor(ITabSettlement.Batch memory batch) private returns (Packed memory packed) {
        Bill memory bill = _goodBills(0, 1)[0];
        packed = _packTabs(_only(bill));
        (packed.tabs[0].r, packed.tabs[0].vs) = _compact(bill.key, _digest(bill, batch));
    }

    function test_error_moreThanThePlatformsPart() public {
        ITabSettlement.Batch memory batch = _tabBatch();
        for (uint256 bit; bit < 2; ++bit) {
            batch.rewardShare = bit == 0 ? 10_001 : type(uint16).max;
            Packed memory packed = _packFor(batch);
            vm.expectRevert(abi.encodeWithSelector(ITabSettlement.InvalidRewardShare.selector, batch.rewardShare));
            _settle(batch, packed);
        }
    }

    function test_behavior_blacklistedKeeper() public {
        usdc.blacklist(KEEPER);
        _settleOne();
        vm.assertEq(usdc.balanceOf(KEEPER), 1, "the keeper's balance");
        vm.assertEq(usdc.balanceOf(PLATFORM) - 1, TO_PLATFORM, "the platform's balance, with the reward");
    }

    function test_behavior_blacklistedKeeperAndPlatform() public {
        usdc.blacklist(KEEPER);
        usdc.blacklist(PLATFORM);
        _settleOne();
        vm.assertEq(usdc.balanceOf(_refuge(PLATFORM)), TO_PLATFORM, "what waits for the platform");
    }

    /// If a stranger copies a batch and settles it first, the stranger gets only the reward.
    function test_behavior_anyoneMaySettle() public {
        Packed memory packed = _packTabs(_goodBills(0, 1));
        vm.prank(STRANGER);
        tabSettlement.settle(_tabBatch(), packed.splits, packed.tabs, packed.lines, packed.signatures);
        vm.assertEq(usdc.balanceOf(STRANGER), TO_PLATFORM / 10, "the stranger's balance");
        _expectNothingSettled(hex"20");
        _settle(packed);
    }

    // Recipients that can't be paid.

    function test_behavior_blacklistedProvider() public {
        usdc.blacklist(PROVIDER);
        _settle(_goodBills(0, 2));
        _checkBalances(0, 2 * TO_OTHER, 2 * TO_PLATFORM, "while the provider is blacklisted");
        vm.assertEq(usdc.balanceOf(_refuge(PROVIDER)), 2 * TO_PROVIDER, "what waits for the provider");
        usdc.unBlacklist(PROVIDER);
        factory.sweep(address(usdc), PROVIDER, _list(_split(PROVIDER, 1, 0)));
        _checkGood(2, "afterwards");
    }

    function test_behavior_blacklistedPlatform() public {
        usdc.blacklist(PLATFORM);
        _settleOne();
        vm.assertEq(usdc.balanceOf(KEEPER) - 1, TO_PLATFORM / 10, "the keeper's balance");
        vm.assertEq(usdc.balanceOf(_refuge(PLATFORM)), TO_PLATFORM * 9 / 10, "what waits for the platform");
        usdc.unBlacklist(PLATFORM);
        factory.sweep(address(usdc), PLATFORM, _list(_split(PLATFORM, 1, 0)));
        _checkGood(1, "afterwards");
    }

    /// Only the token's issuer can cause this. No one else has to wait, nothing is lost, and the money reaches the
    /// account step by step.
    function test_behavior_blacklistedSplitter() public {
        address[2] memory accounts = [PROVIDER, PLATFORM];
        for (uint256 i; i < 2; ++i) {
            uint256 state = vm.snapshotState();
            address account = accounts[i];
            (address first, address second) = (_refuge(account), _refuge(_refuge(account)));
            usdc.blacklist(account);
            usdc.blacklist(first);
            _settleOne();
            uint256 due = i == 0 ? TO_PROVIDER : TO_PLATFORM * 9 / 10;
            vm.assertEq(usdc.balanceOf(second), due, "what waits in the splitter of the splitter");
            vm.assertEq(usdc.balanceOf(OTHER) - 1, TO_OTHER, "the other provider's balance");
            factory.sweep(address(usdc), first, _list(_split(first, 1, 0)));
            vm.assertEq(usdc.balanceOf(second), due, "what waits while the splitter is blacklisted");
            usdc.unBlacklist(first);
            factory.sweep(address(usdc), first, _list(_split(first, 1, 0)));
            vm.assertEq(usdc.balanceOf(first), due, "what waits while the account is blacklisted");
            usdc.unBlacklist(account);
            factory.sweep(address(usdc), account, _list(_split(account, 1, 0)));
            _checkGood(1, "afterwards");
            vm.revertToState(state);
        }
    }

    /// If the issuer blacklists the account and both splitters that would hold its money, the error names the account,
    /// and the nonces stay unused.
    function test_error_payeeRefused() public {
        address[2] memory accounts = [PROVIDER, PLATFORM];
        for (uint256 i; i < 2; ++i) {
            uint256 state = vm.snapshotState();
            usdc.blacklist(accounts[i]);
            usdc.blacklist(_refuge(accounts[i]));
            usdc.blacklist(_refuge(_refuge(accounts[i])));
            Bill[] memory bills = _goodBills(0, 1);
            Packed memory packed = _packTabs(bills);
            vm.expectRevert(abi.encodeWithSelector(ITabSettlement.PayeeRefused.selector, accounts[i]));
            _settle(packed);
            vm.assertTrue(!usdc.authorizationState(bills[0].from, bills[0].nonce), "the nonce");
            vm.revertToState(state);
        }
    }

    function test_args_oddProviders() public {
        address[3] memory odd = [address(0), address(usdc), _buyer(1)];
        for (uint256 i; i < 3; ++i) {
            uint256 state = vm.snapshotState();
            splits[0] = _split(odd[i], 19, 1);
            _settle(_goodBills(0, 2));
            address recipient = i == 2 ? odd[i] : _refuge(odd[i]);
            vm.assertEq(usdc.balanceOf(recipient), 2 * TO_PROVIDER, "the odd recipient's balance");
            _checkBalances(0, 2 * TO_OTHER, 2 * TO_PLATFORM, "the others are paid");
            vm.revertToState(state);
        }
    }

    /// A payer who signs this loses the money: it stays in the contract, and no one can move it.
    function test_args_theContractAsProvider() public {
        splits[0] = _split(address(tabSettlement), 19, 1);
        _settle(_goodBills(0, 1));
        vm.assertEq(usdc.balanceOf(address(tabSettlement)), TO_PROVIDER, "the contract's balance");
        splits[0] = _split(PROVIDER, 19, 1);
        _settle(_goodBills(1, 1));
        vm.assertEq(usdc.balanceOf(address(tabSettlement)), TO_PROVIDER, "the contract's balance, later");
        vm.assertEq(usdc.balanceOf(PROVIDER) - 1, TO_PROVIDER, "the provider's balance");
    }

    function test_args_thePlatformAsProvider() public {
        splits[0] = _split(PLATFORM, 19, 1);
        _settleOne();
        vm.assertEq(usdc.balanceOf(PLATFORM) - 1, TO_PROVIDER + TO_PLATFORM * 9 / 10, "the platform's balance");
    }

    function test_args_thePlatformAsKeeper() public {
        Packed memory packed = _packTabs(_goodBills(0, 1));
        vm.prank(PLATFORM);
        tabSettlement.settle(_tabBatch(), packed.splits, packed.tabs, packed.lines, packed.signatures);
        vm.assertEq(usdc.balanceOf(PLATFORM) - 1, TO_PLATFORM, "the platform's balance");
    }

    function test_args_noPlatform() public {
        ITabSettlement.Batch memory batch = _tabBatch();
        batch.feeRecipient = address(0);
        Packed memory packed = _packFor(batch);
        vm.assertEq(_settle(batch, packed), hex"10", "outcomes");
        vm.assertEq(usdc.balanceOf(PROVIDER) - 1, TO_PROVIDER, "the provider's balance");
        vm.assertEq(usdc.balanceOf(_refuge(address(0))), TO_PLATFORM * 9 / 10, "what waits for the zero address");
    }

    // Tokens that strangers wrote.

    function test_behavior_tokenThatMovesNothing() public {
        ITabSettlement.Batch memory batch = _tabBatch();
        batch.token = address(new YesToken());
        Packed memory packed = _packTabs(_goodBills(0, 1));
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit IBatchSettlement.BatchSettled(BATCH_ID, KEEPER, batch.token, 1, 1, 47_000, 3_000, hex"10");
        _settle(batch, packed);
        _checkGood(0, "after another token's batch");
        vm.assertEq(_settle(packed), hex"10", "outcomes with the real token, afterwards");
    }

    function test_behavior_tokenThatReturnsFalse() public {
        ITabSettlement.Batch memory batch = _tabBatch();
        batch.token = address(new WithholdingToken());
        Packed memory packed = _packTabs(_goodBills(0, 1));
        vm.expectRevert(abi.encodeWithSelector(ITabSettlement.PayeeRefused.selector, PROVIDER));
        _settle(batch, packed);
    }

    /// A batch of the real token inside another token's batch, during a pull and during each payout, settles once. The
    /// outer batch only logs events.
    function test_behavior_tokenThatReenters() public {
        Packed memory packed = _packTabs(_goodBills(0, 2));
        ITabSettlement.Batch memory batch = _tabBatch();
        batch.token = address(new ReentrantToken(address(tabSettlement), _call(packed)));
        batch.callGasLimit = 3_000_000;
        // The first pull settles everything. Later the inner batch has nothing to settle and reverts, so the payouts
        // fail.
        vm.expectRevert(abi.encodeWithSelector(ITabSettlement.PayeeRefused.selector, PROVIDER));
        _settle(batch, packed);
        _checkGood(0, "after a batch that reverted");
        address lenient = address(new LenientToken(address(tabSettlement), _call(packed)));
        batch.token = lenient;
        vm.assertEq(_settle(batch, packed), hex"1010", "outcomes of the outer batch");
        vm.assertEq(usdc.balanceOf(lenient), 2 * TO_PLATFORM / 10, "the caller's reward");
        vm.assertEq(usdc.balanceOf(PROVIDER) - 1, 2 * TO_PROVIDER, "the provider's balance");
        vm.assertEq(usdc.balanceOf(PLATFORM) - 1, 2 * TO_PLATFORM * 9 / 10, "the platform's balance");
        vm.assertEq(usdc.balanceOf(address(tabSettlement)), 0, "the contract's balance");
    }

    function test_behavior_theContractAsToken() public {
        ITabSettlement.Batch memory batch = _tabBatch();
        Packed memory packed = _packTabs(_goodBills(0, 1));
        address[2] memory tokens = [address(tabSettlement), address(factory)];
        for (uint256 i; i < 2; ++i) {
            batch.token = tokens[i];
            _expectNothingSettled(hex"30");
            _settle(batch, packed);
        }
    }

    /// No one can take tokens that were sent to the contract by mistake, or pay with them.
    function test_behavior_tokensSentByMistakeStay() public {
        usdc.mint(address(tabSettlement), 1_000_000);
        Bill memory bill = _bill(0);
        bill.from = address(tabSettlement);
        Packed memory packed = _packTabs(_only(bill));
        _expectNothingSettled(hex"30");
        _settle(packed);
        _settle(_goodBills(1, 2));
        vm.assertEq(usdc.balanceOf(address(tabSettlement)), 1_000_000, "what was sent by mistake");
    }

    function test_behavior_zeroPayer() public {
        Bill memory bill = _bill(0);
        bill.from = address(0);
        Packed memory packed = _packTabs(_only(bill));
        (packed.tabs[0].r, packed.tabs[0].vs) = (0, bytes32(uint256(1)));
        _expectNothingSettled(hex"30");
        _settle(packed);
    }
}

/// @notice Reports success for pulls, and refuses payouts.
contract WithholdingToken {
    function transfer(address, uint256) external pure returns (bool) {
        return false;
    }

    fallback() external {}
}

/// @notice A token that reenters: each call of its functions first tries to settle a batch of the real token, and then
/// succeeds even if that batch failed.
contract LenientToken {
    address private immutable SETTLEMENT;
    bytes private _inner;

    constructor(address settlement, bytes memory inner) {
        (SETTLEMENT, _inner) = (settlement, inner);
    }

    function authorizationState(address, bytes32) external pure returns (bool) {
        return false;
    }

    fallback() external {
        (bool success,) = SETTLEMENT.call(_inner);
        success;
    }
}
